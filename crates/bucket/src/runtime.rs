//! The threads of the client library.

use std::future::Future;
use std::sync::OnceLock;
use tokio::runtime::{Builder, Handle};

/// Two sets of threads, so that the compaction of tables never holds up a request.
pub struct Runtime {
    io: tokio::runtime::Runtime,
    tables: tokio::runtime::Runtime,
}

/// The process's one runtime.
///
/// # Panics
/// When the system refuses the threads.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        // one library of cryptography in the process; an earlier choice of the same stays
        let _ = rustls::crypto::ring::default_provider().install_default();
        let threads = |name: &str, count| {
            Builder::new_multi_thread().worker_threads(count).thread_name(name).enable_all().build()
        };
        Runtime {
            io: threads("lee-io", 2).expect("the system refused a thread"),
            tables: threads("lee-tables", 1).expect("the system refused a thread"),
        }
    })
}

impl Runtime {
    /// Runs a future on this thread until it is done. Not from one of the runtime's own threads.
    pub fn wait<T>(&self, what: impl Future<Output = T>) -> T {
        self.io.block_on(what)
    }

    /// Runs `f` where a library finds the runtime.
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        let _entered = self.io.enter();
        f()
    }

    /// For requests.
    pub fn io(&self) -> &Handle {
        self.io.handle()
    }

    /// For long work that nobody waits for.
    pub fn tables(&self) -> &Handle {
        self.tables.handle()
    }
}
