//! The server is killed again and again while machines work: what their programs were told is done
//! is done, once, and no program sees an error.

use crate::common::machines::{Machine, Served};
use crate::common::{Over, can_mount};
use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Names in a directory that only one thread uses, and what it was told that they have.
struct Own {
    dir: PathBuf,
    files: BTreeMap<String, Vec<u8>>,
    log: Vec<u8>,
    made: usize,
    random: u64,
}

impl Own {
    fn new(machine: &Machine, number: u64) -> Own {
        let dir = machine.path(&format!("own{number}"));
        fs::create_dir(&dir).expect("made");
        Own { dir, files: BTreeMap::new(), log: Vec::new(), made: 0, random: number + 1 }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as usize % end
    }

    fn any(&mut self) -> Option<String> {
        let at = self.below(self.files.len().max(1));
        self.files.keys().nth(at).cloned()
    }

    fn step(&mut self) {
        let content: Vec<u8> = (0..self.below(9000)).map(|n| (n * 7 + self.made) as u8).collect();
        self.made += 1;
        let (new, any) = (format!("f{}", self.made), self.any());
        match (self.below(10), any) {
            (0..4, _) | (_, None) => {
                fs::write(self.dir.join(&new), &content).expect("written");
                self.files.insert(new, content);
            }
            (4, Some(old)) => {
                fs::rename(self.dir.join(&old), self.dir.join(&new)).expect("renamed");
                let content = self.files.remove(&old).expect("known");
                self.files.insert(new, content);
            }
            (5, Some(old)) => {
                fs::remove_file(self.dir.join(&old)).expect("removed");
                self.files.remove(&old);
            }
            (6, Some(old)) => {
                fs::hard_link(self.dir.join(&old), self.dir.join(&new)).expect("linked");
                fs::remove_file(self.dir.join(&old)).expect("removed");
                let content = self.files.remove(&old).expect("known");
                self.files.insert(new, content);
            }
            (7, Some(old)) => {
                let file = OpenOptions::new().write(true).open(self.dir.join(&old)).expect("opened");
                let known = self.files.get_mut(&old).expect("known");
                let len = known.len() / 2;
                file.set_len(len as u64).expect("cut");
                known.truncate(len);
                file.write_all_at(&content, len as u64).expect("written");
                known.extend(content);
            }
            (_, Some(_)) => {
                let line = format!("{} line\n", self.made);
                let log = self.dir.join("log");
                let file = OpenOptions::new().append(true).create(true).open(log);
                file.expect("opened").write_all(line.as_bytes()).expect("appended");
                self.log.extend(line.as_bytes());
            }
        }
    }

    /// All is as it was told, and nothing else is there.
    fn check(&self, root: &dyn Fn(&str) -> PathBuf) {
        let dir = root(self.dir.file_name().and_then(|name| name.to_str()).expect("a name"));
        let mut found: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in fs::read_dir(&dir).expect("listed") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            found.insert(name.clone(), fs::read(dir.join(name)).expect("read"));
        }
        let log = found.remove("log").unwrap_or_default();
        assert!(log == self.log, "{}: the log has {} bytes of {}", dir.display(), log.len(), self.log.len());
        let names: Vec<_> = found.keys().collect();
        assert_eq!(names, self.files.keys().collect::<Vec<_>>(), "{}", dir.display());
        for (name, content) in &self.files {
            assert!(found.get(name) == Some(content), "{}/{name}", dir.display());
        }
    }
}

#[test]
fn what_programs_were_told_survives_servers_that_are_killed() {
    if !can_mount() {
        return;
    }
    let served = Served::new();
    let machines = [served.machine("a", &[], &[]), served.machine("b", &[], &[])];
    let owns = (0..4).map(|number| Own::new(&machines[number as usize % 2], number));
    let owns: Vec<Own> = owns.collect();
    fs::create_dir(machines[0].path("shared")).expect("made");
    let over = AtomicBool::new(false);
    let owns: Vec<Own> = std::thread::scope(|scope| {
        let ends = Over(&over);
        let work = |(number, mut own): (usize, Own)| {
            let shared = machines[number % 2].path("shared");
            let over = &over;
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    own.step();
                    let name = shared.join(format!("{number}-{}", own.made));
                    fs::create_dir(&name).expect("made in a directory that all use");
                    fs::write(name.join("x"), "x").expect("written");
                }
                own
            })
        };
        let threads: Vec<_> = owns.into_iter().enumerate().map(work).collect();
        for turn in 0..5 {
            std::thread::sleep(Duration::from_millis(400 + 130 * turn));
            served.place.kill();
            // its keeper brings it back
        }
        std::thread::sleep(Duration::from_millis(500));
        drop(ends);
        threads.into_iter().map(|thread| thread.join().expect("no error")).collect()
    });
    for (number, own) in owns.iter().enumerate() {
        // on the machine where it was, and on the other
        own.check(&|name| machines[number % 2].path(name));
        own.check(&|name| machines[1 - number % 2].path(name));
        let shared = (1..=own.made).map(|made| machines[0].path(&format!("shared/{number}-{made}/x")));
        shared.for_each(|path| assert!(path.exists(), "{}", path.display()));
    }
    println!("{} steps survived", owns.iter().map(|own| own.made).sum::<usize>());
    served.ask(&["fsck"]).good();
}
