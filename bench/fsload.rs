// fsload: one small load generator, the same for every file system under test.
// Build: rustc -O fsload.rs -o fsload          (standard library only)
// Every phase prints one JSON line: ops, seconds, ops/s, p50/p99/max latency in microseconds, errors.
//
//   fsload md    DIR [--files N] [--threads T] [--bytes B] [--dirs D]   mdtest-like: mkdir create stat list read rename unlink rmdir
//   fsload create DIR [--files N] [--threads T] [--bytes B] [--dirs D]  only mkdir and create; the files stay
//   fsload deep  DIR [--depth N] [--files N]                            one deep chain of directories, files in each; then removal
//   fsload io    DIR [--mb N] [--bs BYTES] [--threads T]                sequential write (fsync at the end) and read
//   fsload seqread DIR [--mb N] [--bs BYTES]                            sequential read of what io or rand left behind
//   fsload rand  DIR [--mb N] [--bs BYTES] [--ops N] [--threads T]      random read and write in one file a thread
//   fsload probe DIR [--secs S] [--gap MS]                              64 kB write+fsync, stat of a fresh file, unlink: latency of an interactive user
//   fsload change DIR --mode chmod|utimens|write|create|unlink|rename|back [--files N]  one kind of change to each file; unlink and rename (and
//                                                                       back, which renames back) want files that create made with --threads 1
//   fsload walk  DIR [--threads T]                                      lists all and reads all files, one thread a directory of the top
//   fsload storm DIR [--secs S] [--depth N] [--files N] [--flat N] [--mode snapshots|plain]  builds a deep tree and a flat one, [takes a snapshot,]
//                                                                       removes both, [removes the snapshot,] over and over
//   fsload hammer DIR [--secs S] [--threads T] [--mode create|write|read|stat]
use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

#[derive(Clone)]
struct Opt { dir: PathBuf, files: usize, threads: usize, bytes: usize, dirs: usize, depth: usize, flat: usize, mb: usize, bs: usize, ops: usize, secs: u64, gap: u64, mode: String }

#[derive(Default)]
struct Lat { us: Vec<u32>, errs: usize, first: Option<String> }
impl Lat {
    fn time<T>(&mut self, f: impl FnOnce() -> std::io::Result<T>) -> Option<T> {
        let t = Instant::now();
        let r = f();
        self.us.push(t.elapsed().as_micros().min(u32::MAX as u128) as u32);
        match r { Ok(v) => Some(v), Err(e) => { self.errs += 1; if self.first.is_none() { self.first = Some(e.to_string()) } None } }
    }
    fn merge(mut a: Lat, b: Lat) -> Lat { a.us.extend(b.us); a.errs += b.errs; a.first = a.first.or(b.first); a }
}
fn report(name: &str, secs: f64, mut l: Lat, bytes: f64) {
    l.us.sort_unstable();
    let n = l.us.len();
    let q = |p: f64| if n == 0 { 0 } else { l.us[((n - 1) as f64 * p) as usize] };
    print!("{{\"phase\":\"{name}\",\"ops\":{n},\"secs\":{secs:.3},\"ops_per_s\":{:.0},\"p50_us\":{},\"p99_us\":{},\"max_us\":{},\"errors\":{}", n as f64 / secs, q(0.5), q(0.99), q(1.0), l.errs);
    if bytes > 0.0 { print!(",\"mb_per_s\":{:.1}", bytes / secs / 1e6) }
    if let Some(e) = l.first { print!(",\"first_error\":{e:?}") }
    println!("}}");
}
fn par(name: &str, o: &Opt, bytes: f64, f: impl Fn(usize, &mut Lat) + Send + Sync + 'static) {
    let f = Arc::new(f);
    let b = Arc::new(Barrier::new(o.threads + 1));
    let hs: Vec<_> = (0..o.threads).map(|t| { let (f, b) = (f.clone(), b.clone()); std::thread::spawn(move || { let mut l = Lat::default(); b.wait(); f(t, &mut l); l }) }).collect();
    let s = Instant::now();
    b.wait();
    let l = hs.into_iter().map(|h| h.join().unwrap()).fold(Lat::default(), Lat::merge);
    report(name, s.elapsed().as_secs_f64(), l, bytes);
}
fn rnd(x: &mut u64) -> u64 { *x ^= *x << 13; *x ^= *x >> 7; *x ^= *x << 17; *x }
fn noise(n: usize, seed: u64) -> Vec<u8> { let mut x = seed | 1; (0..n).map(|_| rnd(&mut x) as u8).collect() }
fn p(o: &Opt, t: usize, i: usize) -> PathBuf { o.dir.join(format!("t{t}/d{}/f{i:07}", i % o.dirs)) }

fn md(o: Opt, keep: bool) {
    let per = o.files / o.threads;
    let c = o.clone(); par("mkdir", &o, 0.0, move |t, l| { fs::create_dir_all(c.dir.join(format!("t{t}"))).unwrap(); for d in 0..c.dirs { l.time(|| fs::create_dir(c.dir.join(format!("t{t}/d{d}")))); } });
    let (c, buf) = (o.clone(), noise(o.bytes, 7));
    par("create", &o, (o.bytes * per * o.threads) as f64, move |t, l| for i in 0..per { l.time(|| { let mut f = File::create(p(&c, t, i))?; if !buf.is_empty() { f.write_all(&buf)?; } Ok(()) }); });
    if keep { return }
    let c = o.clone(); par("stat", &o, 0.0, move |t, l| { let mut x = 99 + t as u64; for _ in 0..per { let i = rnd(&mut x) as usize % per; l.time(|| fs::metadata(p(&c, t, i))); } });
    let c = o.clone(); par("list", &o, 0.0, move |t, l| for d in 0..c.dirs { l.time(|| { for e in fs::read_dir(c.dir.join(format!("t{t}/d{d}")))? { e?.metadata()?; } Ok(()) }); });
    if o.bytes > 0 { let c = o.clone(); par("read", &o, (o.bytes * per * o.threads) as f64, move |t, l| { let mut b = vec![0u8; c.bytes]; for i in 0..per { l.time(|| File::open(p(&c, t, i))?.read_exact(&mut b)); } }); }
    let c = o.clone(); par("rename", &o, 0.0, move |t, l| for i in 0..per { let a = p(&c, t, i); let b = a.with_extension("r"); l.time(|| fs::rename(&a, &b)); });
    let c = o.clone(); par("unlink", &o, 0.0, move |t, l| for i in 0..per { l.time(|| fs::remove_file(p(&c, t, i).with_extension("r"))); });
    let c = o.clone(); par("rmdir", &o, 0.0, move |t, l| { for d in 0..c.dirs { l.time(|| fs::remove_dir(c.dir.join(format!("t{t}/d{d}")))); } let _ = fs::remove_dir(c.dir.join(format!("t{t}"))); });
}
fn deep(o: Opt) {
    let mut o1 = o.clone(); o1.threads = 1;
    let c = o1.clone(); par("deep-create", &o1, 0.0, move |_, l| { let mut d = c.dir.join("deep"); for i in 0..c.depth { l.time(|| fs::create_dir(&d)); for k in 0..c.files { l.time(|| File::create(d.join(format!("f{k}")))); } d = d.join(format!("n{}", i % 10)); } });
    let c = o1.clone(); par("deep-remove", &o1, 0.0, move |_, l| { l.time(|| fs::remove_dir_all(c.dir.join("deep"))); });
}
fn io(o: Opt) {
    let tot = (o.mb << 20) * o.threads; let n = (o.mb << 20) / o.bs;
    let (c, buf) = (o.clone(), noise(o.bs, 11));
    par("seq-write", &o, tot as f64, move |t, l| { let mut f = File::create(c.dir.join(format!("big{t}"))).unwrap(); for _ in 0..n { l.time(|| f.write_all(&buf)); } l.time(|| f.sync_all()); });
    let c = o.clone(); par("seq-read", &o, tot as f64, move |t, l| { let mut f = File::open(c.dir.join(format!("big{t}"))).unwrap(); let mut b = vec![0; c.bs]; for _ in 0..n { l.time(|| f.read_exact(&mut b)); } });
}
fn seqread(o: Opt) {
    let n = (o.mb << 20) / o.bs;
    let c = o.clone(); par("seq-read", &o, ((o.mb << 20) * o.threads) as f64, move |t, l| { let mut f = File::open(c.dir.join(format!("big{t}"))).unwrap(); let mut b = vec![0; c.bs]; for _ in 0..n { l.time(|| f.read_exact(&mut b)); } });
}
fn rand(o: Opt) {
    for t in 0..o.threads { let mut f = File::create(o.dir.join(format!("big{t}"))).unwrap(); let b = noise(1 << 20, 3); for _ in 0..o.mb { f.write_all(&b).unwrap(); } f.sync_all().unwrap(); }
    let blocks = (o.mb << 20) / o.bs;
    let c = o.clone(); par("rand-read", &o, (o.ops * o.bs * o.threads) as f64, move |t, l| { let f = File::open(c.dir.join(format!("big{t}"))).unwrap(); let mut b = vec![0; c.bs]; let mut x = 5 + t as u64; for _ in 0..c.ops { let k = rnd(&mut x) as usize % blocks; l.time(|| f.read_exact_at(&mut b, (k * c.bs) as u64)); } });
    let c = o.clone(); par("rand-write", &o, (o.ops * o.bs * o.threads) as f64, move |t, l| { let f = OpenOptions::new().write(true).open(c.dir.join(format!("big{t}"))).unwrap(); let b = noise(c.bs, 9); let mut x = 6 + t as u64; for _ in 0..c.ops { let k = rnd(&mut x) as usize % blocks; l.time(|| f.write_all_at(&b, (k * c.bs) as u64)); } l.time(|| f.sync_all()); });
}
fn probe(o: Opt) {
    let buf = noise(64 * 1024, 1); let (mut w, mut s, mut u) = (Lat::default(), Lat::default(), Lat::default());
    let start = Instant::now(); let mut i = 0;
    while start.elapsed() < Duration::from_secs(o.secs) {
        let f = o.dir.join(format!("probe-{}-{i}", std::process::id())); i += 1;
        w.time(|| { let mut h = File::create(&f)?; h.write_all(&buf)?; h.sync_all() });
        s.time(|| fs::metadata(&f)); u.time(|| fs::remove_file(&f));
        std::thread::sleep(Duration::from_millis(o.gap));
    }
    let t = start.elapsed().as_secs_f64();
    report("probe-write64k-fsync", t, w, 0.0); report("probe-stat", t, s, 0.0); report("probe-unlink", t, u, 0.0);
}
extern "C" { fn utimensat(dir: i32, path: *const std::ffi::c_char, times: *const [i64; 4], flags: i32) -> i32; }
fn set_times(p: &Path) -> std::io::Result<()> {
    let c = std::ffi::CString::new(p.as_os_str().as_encoded_bytes())?;
    let t = [1_000_000_000i64, 1, 1_000_000_000, 2];
    // SAFETY: a path that ends with 0 and two times of two 64-bit fields each, as on 64-bit Linux.
    if unsafe { utimensat(-100, c.as_ptr(), &t, 0) } == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
fn change(o: Opt) {
    use std::os::unix::fs::PermissionsExt;
    let buf = noise(4096, std::process::id() as u64);
    let c = o.clone(); par(&format!("change-{}", o.mode), &o, 0.0, move |t, l| for i in 0..c.files / c.threads { let a = p(&c, t, i); let b = a.with_extension("r"); match c.mode.as_str() {
        "chmod" => { l.time(|| fs::set_permissions(&a, fs::Permissions::from_mode(0o600 + (std::process::id() & 7)))); }
        "utimens" => { l.time(|| set_times(&a)); }
        "write" => { l.time(|| OpenOptions::new().write(true).open(&a)?.write_all_at(&buf, 0)); }
        "create" => { l.time(|| File::create(&a)); }
        "unlink" => { l.time(|| fs::remove_file(&a)); }
        "rename" => { l.time(|| fs::rename(&a, &b)); }
        "back" => { l.time(|| fs::rename(&b, &a)); }
        m => panic!("unknown change {}", m) } });
}
fn walk_dir(d: &Path, l: &mut Lat, bytes: &mut u64) -> std::io::Result<()> {
    for e in fs::read_dir(d)? {
        let e = e?;
        if e.file_type()?.is_dir() { walk_dir(&e.path(), l, bytes)?; continue }
        if let Some(b) = l.time(|| fs::read(e.path())) { *bytes += b.len() as u64 }
    }
    Ok(())
}
fn walk(o: Opt) {
    let tops: Vec<PathBuf> = fs::read_dir(&o.dir).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()).collect();
    par("walk", &o.clone(), 0.0, move |t, l| { let mut n = 0; for d in tops.iter().skip(t).step_by(o.threads) { if let Err(e) = walk_dir(d, l, &mut n) { l.errs += 1; l.first = Some(e.to_string()) } } });
}
fn storm(o: Opt) {
    let (start, deep, flat, mut round) = (Instant::now(), o.dir.join("deep"), o.dir.join("flat"), 0);
    let snaps = o.mode == "snapshots";
    while start.elapsed() < Duration::from_secs(o.secs) {
        let (mut l, s, snap) = (Lat::default(), Instant::now(), o.dir.join(format!(".snap/s{round}"))); round += 1;
        let mut d = deep.clone();
        for i in 0..o.depth { l.time(|| fs::create_dir(&d)); for k in 0..o.files { l.time(|| File::create(d.join(format!("f{k}")))); } d = d.join(format!("{}", i % 10)); }
        l.time(|| fs::create_dir(&flat));
        for k in 0..o.flat { l.time(|| File::create(flat.join(format!("f{k}")))); }
        if snaps { l.time(|| fs::create_dir(&snap)); }
        l.time(|| fs::remove_dir_all(&deep)); l.time(|| fs::remove_dir_all(&flat));
        if snaps { l.time(|| fs::remove_dir(&snap)); }
        report("storm", s.elapsed().as_secs_f64(), l, 0.0);
    }
}
fn hammer(o: Opt) {
    let stop = Arc::new(AtomicBool::new(false)); let s2 = stop.clone(); let secs = o.secs;
    std::thread::spawn(move || { std::thread::sleep(Duration::from_secs(secs)); s2.store(true, Ordering::Relaxed) });
    let (c, buf) = (o.clone(), noise(1 << 20, 5));
    par(&format!("hammer-{}", o.mode), &o, 0.0, move |t, l| {
        let d = c.dir.join(format!("h{t}")); let _ = fs::create_dir_all(&d); let big = d.join("big");
        if c.mode == "read" { let mut f = File::create(&big).unwrap(); for _ in 0..64 { f.write_all(&buf).unwrap(); } }
        let mut i = 0usize;
        while !stop.load(Ordering::Relaxed) { i += 1; match c.mode.as_str() {
            "create" => { l.time(|| File::create(d.join(format!("f{i}")))); }
            "write" => { l.time(|| { let mut f = OpenOptions::new().create(true).append(true).open(&big)?; f.write_all(&buf)?; if i % 256 == 0 { f.set_len(0)?; } Ok(()) }); }
            "read" => { l.time(|| { let f = File::open(&big)?; let mut b = vec![0; 1 << 20]; f.read_exact_at(&mut b, ((i % 64) << 20) as u64) }); }
            _ => { l.time(|| fs::metadata(&d)); } } }
    });
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    if a.len() < 3 { eprintln!("usage: fsload md|create|deep|io|seqread|rand|probe|change|walk|storm|hammer DIR [--files N] [--threads T] [--bytes B] [--dirs D] [--depth N] [--flat N] [--mb N] [--bs B] [--ops N] [--secs S] [--gap MS] [--mode M]"); std::process::exit(2) }
    let g = |k: &str, d: usize| a.iter().position(|x| x == k).map(|i| a[i + 1].parse().expect(k)).unwrap_or(d);
    let o = Opt { dir: Path::new(&a[2]).to_path_buf(), files: g("--files", 10000), threads: g("--threads", 2), bytes: g("--bytes", 0), dirs: g("--dirs", 10), depth: g("--depth", 200), flat: g("--flat", 10000), mb: g("--mb", 512), bs: g("--bs", 1 << 20), ops: g("--ops", 5000), secs: g("--secs", 10) as u64, gap: g("--gap", 50) as u64, mode: a.iter().position(|x| x == "--mode").map(|i| a[i + 1].clone()).unwrap_or("create".into()) };
    fs::create_dir_all(&o.dir).expect("cannot create DIR");
    match a[1].as_str() { "md" => md(o, false), "create" => md(o, true), "deep" => { let mut o = o; if !a.iter().any(|x| x == "--files") { o.files = 20 } deep(o) } "io" => io(o), "seqread" => seqread(o), "rand" => rand(o), "probe" => probe(o), "change" => change(o), "walk" => walk(o), "storm" => { let mut o = o; if !a.iter().any(|x| x == "--files") { o.files = 20 } storm(o) } "hammer" => hammer(o), m => { eprintln!("unknown mode {m}"); std::process::exit(2) } }
}
