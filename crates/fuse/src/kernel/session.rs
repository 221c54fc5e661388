//! The handshake with the kernel, and the threads that serve a mount.

use super::abi::{self, init, opcode};
use super::device::{Buffer, Device, head_of};
use super::reply::Reply;
use super::request::{Call, Request};
use super::ring::{self, Layout, Service, Shared, Watch, Yielding};
use super::{Handler, handle};
use leeward_env::Env;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

/// How long a thread that has read a FORGET lets others gather. An interrupt may wait for so long.
const BETWEEN_FORGETS: Duration = Duration::from_millis(2);

/// How requests are to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rings {
    /// By io_uring where that works, else from `/dev/fuse`.
    Auto,
    /// From `/dev/fuse`.
    No,
}

/// How requests come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Channel {
    /// From `/dev/fuse`; why not by io_uring.
    Device(String),
    /// By io_uring: so many rings and entries in all.
    Rings { rings: usize, entries: usize },
}

impl fmt::Display for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Channel::Device(why) => write!(f, "/dev/fuse, as {why}"),
            Channel::Rings { rings, entries } => write!(f, "io_uring, {rings} rings with {entries} entries"),
        }
    }
}

/// What is asked of the kernel.
pub(crate) struct Limits {
    /// Flags of [`init`]; those that the kernel does not know are left out.
    pub(crate) flags: u64,
    /// Largest write and read, where there are no rings.
    pub(crate) write_bytes: usize,
    /// Requests in the kernel's queue that nobody waits for.
    pub(crate) background: u16,
}

/// A mount that is being served.
pub(crate) struct Session {
    device: Arc<Device>,
    channel: Channel,
}

/// INIT, as far as it matters.
struct Hello {
    unique: u64,
    minor: u32,
    max_readahead: u32,
    flags: u64,
}

impl Session {
    /// Shakes hands and starts the threads: `threads` that read from the device, with `handler`,
    /// and those of the rings, with what `for_rings` makes of it. They end, and drop the handlers,
    /// when the file system is unmounted. All are there before the kernel is told anything: it
    /// makes users wait for rings that it was told of.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn start<H: Handler>(
        env: &Env,
        device: Device,
        (handler, for_rings): (Arc<H>, impl FnOnce(&H) -> Arc<H>),
        (limits, rings): (&Limits, Rings),
        threads: usize,
    ) -> io::Result<Session> {
        let device = Arc::new(device);
        let hello = Hello::read(&device)?;
        let has_locks = limits.flags & hello.flags & init::POSIX_LOCKS != 0;
        let spare = if has_locks { ring::LOCK_ENTRIES } else { 0 };
        let mut started = start_rings(env, &device, &hello, (rings, spare, || for_rings(&handler)));
        let payload_bytes = started.payload_bytes.unwrap_or(limits.write_bytes);
        let mut readers = Vec::new();
        let ends: Arc<[Arc<Shared>]> = started.ends.into();
        let has_rings = started.payload_bytes.is_some();
        for number in 0..threads {
            let (handler, ends) = (handler.clone(), ends.clone());
            let reader = Reader { env: env.clone(), device: device.clone(), payload_bytes, has_rings };
            let (go, wait) = sync_channel(1);
            env.try_spawn(&format!("fuse-{number}"), move || {
                if wait.recv().is_ok() {
                    reader.serve(&*handler);
                }
                ends.iter().for_each(|ring| ring.end());
            })?;
            readers.push(go);
        }
        hello.answer(&device, limits, (payload_bytes, has_rings))?;
        started.go.append(&mut readers);
        started.go.iter().for_each(|go| _ = go.send(()));
        Ok(Session { device, channel: started.channel })
    }

    /// For what the kernel is to be told.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// How requests come.
    pub(crate) fn channel(&self) -> &Channel {
        &self.channel
    }
}

/// Threads of rings, which wait.
struct Started {
    /// A word to each makes it begin; one that gets none ends.
    go: Vec<SyncSender<()>>,
    ends: Vec<Arc<Shared>>,
    /// `None`: there are no rings.
    payload_bytes: Option<usize>,
    channel: Channel,
}

impl Started {
    fn without(why: String) -> Started {
        Started { go: Vec::new(), ends: Vec::new(), payload_bytes: None, channel: Channel::Device(why) }
    }
}

/// Makes the rings and their threads, if there are to be any.
fn start_rings<H: Handler>(
    env: &Env,
    device: &Arc<Device>,
    hello: &Hello,
    (rings, spare, handler): (Rings, usize, impl FnOnce() -> Arc<H>),
) -> Started {
    if rings == Rings::No {
        return Started::without("the mount option no_io_uring says".into());
    }
    if hello.flags & init::OVER_IO_URING == 0 {
        let needed = "Linux 6.14, /sys/module/fuse/parameters/enable_uring";
        return Started::without(format!("the kernel does not offer io_uring ({needed})"));
    }
    let Some(layout) = Layout::of_machine() else {
        return Started::without("/sys/devices/system/cpu does not say how many processors to serve".into());
    };
    let made = ring::check().and_then(|()| {
        let watch = Watch::new(env, layout.rings.len());
        let make = |(number, ring)| {
            let yielding = Yielding::new(watch.clone(), number);
            Service::new(env, device, (ring, layout.payload_bytes), (spare, yielding))
        };
        layout.rings.iter().enumerate().map(make).collect::<io::Result<Vec<_>>>()
    });
    let entries = layout.rings.iter().map(|ring| ring.queue_of_entry.len()).sum();
    let started = made.and_then(|services| wait_to_serve(env, services, &handler()));
    match started {
        Ok((go, ends)) => {
            let channel = Channel::Rings { rings: go.len(), entries };
            Started { go, ends, payload_bytes: Some(layout.payload_bytes), channel }
        }
        Err(e) => Started::without(format!(
            "io_uring cannot be used ({e}; see sysctl kernel.io_uring_disabled and limits of threads)"
        )),
    }
}

type Waiting = (Vec<SyncSender<()>>, Vec<Arc<Shared>>);

fn wait_to_serve<H: Handler>(env: &Env, services: Vec<Service>, handler: &Arc<H>) -> io::Result<Waiting> {
    let (mut all, mut ends) = (Vec::new(), Vec::new());
    for (number, service) in services.into_iter().enumerate() {
        ends.push(service.shared().clone());
        let (go, wait) = sync_channel(1);
        let handler = handler.clone();
        env.try_spawn(&format!("fuse-ring-{number}"), move || {
            if wait.recv().is_ok() {
                service.serve(&*handler);
            }
        })?;
        all.push(go);
    }
    Ok((all, ends))
}

impl Hello {
    fn read(device: &Device) -> io::Result<Hello> {
        let mut buffer = Buffer::new(0);
        let bad = |what: &str| io::Error::other(format!("the kernel's first request {what}"));
        let bytes = device.read(&mut buffer)?.ok_or_else(|| bad("did not come: it was unmounted"))?;
        let request = Request::from_device(bytes).map_err(|_| bad("cannot be read"))?;
        let Call::Init { args, flags2 } = request.call else { return Err(bad("is not INIT")) };
        if args.major != abi::MAJOR || args.minor < abi::MINOR_OLDEST {
            let (major, minor) = (args.major, args.minor);
            return Err(bad(&format!("speaks FUSE {major}.{minor}: Linux 4.18 or newer is needed")));
        }
        let flags = u64::from(args.flags) | u64::from(flags2) << 32;
        let unique = request.head.unique;
        Ok(Hello { unique, minor: args.minor, max_readahead: args.max_readahead, flags })
    }

    fn answer(&self, device: &Device, limits: &Limits, (bytes, rings): (usize, bool)) -> io::Result<()> {
        const BASE: u64 = init::ASYNC_READ | init::BIG_WRITES | init::MAX_PAGES | init::INIT_EXT;
        let missing = limits.flags & !self.flags;
        if missing != 0 {
            tracing::info!("this kernel's FUSE lacks the features {missing:#x}");
        }
        let rings = if rings { init::OVER_IO_URING } else { 0 };
        let flags = (BASE | limits.flags | rings) & self.flags;
        let out = abi::InitOut {
            major: abi::MAJOR,
            minor: self.minor.min(abi::MINOR),
            max_readahead: self.max_readahead,
            flags: flags as u32,
            max_background: limits.background,
            congestion_threshold: limits.background / 4 * 3,
            max_write: bytes as u32,
            time_granularity: 1,
            max_pages: (bytes / abi::page_bytes()).max(1) as u16,
            flags2: (flags >> 32) as u32,
            ..abi::InitOut::default()
        };
        device.answer(self.unique, &out)
    }
}

/// A thread that reads from the device.
struct Reader {
    env: Env,
    device: Arc<Device>,
    payload_bytes: usize,
    /// Whether requests that users wait for come by them.
    has_rings: bool,
}

impl Reader {
    /// Reads and handles requests until there are no more.
    fn serve(&self, handler: &impl Handler) {
        let mut buffer = Buffer::new(self.payload_bytes);
        loop {
            let bytes = match self.device.read(&mut buffer) {
                Ok(Some(bytes)) => bytes,
                Ok(None) => return,
                Err(e) => return tracing::error!("the mount's requests cannot be read: {e}"),
            };
            let Ok(request) = Request::from_device(bytes) else {
                refuse(&self.device, bytes);
                continue;
            };
            let is_forget = matches!(request.call, Call::Forget { .. } | Call::BatchForget { .. });
            let reply = Reply::to_device(&self.device, request.head.unique);
            handle(handler, request, reply);
            if is_forget && self.has_rings {
                // more of them come as one, and whoever removes files need not wake this thread for
                // each
                self.env.sleep(BETWEEN_FORGETS);
            }
        }
    }
}

/// A request that cannot be read.
fn refuse(device: &Arc<Device>, bytes: &[u8]) {
    let Some(head) = head_of(bytes) else { return };
    tracing::error!("a request of the kernel cannot be read: number {}", head.opcode);
    if !matches!(head.opcode, opcode::FORGET | opcode::BATCH_FORGET) {
        Reply::to_device(device, head.unique).error(libc::EIO);
    }
}
