//! Locks of files that end when they are given back.

use std::fs::{File, TryLockError};
use std::ops::Deref;

/// An exclusive lock of a file (`flock`), held as long as this lives.
///
/// Giving it back unlocks the file. Closing it would not do: a process that another thread is just
/// starting has the same open file until it runs its program.
#[derive(Debug)]
pub struct FileLock(File);

impl FileLock {
    /// Locks the file.
    ///
    /// # Errors
    /// Another process has it locked, or the system's error.
    pub fn try_take(file: File) -> Result<FileLock, TryLockError> {
        file.try_lock().map(|()| FileLock(file))
    }

    /// The lock of a file that was locked otherwise, or that stands for one where the file system
    /// has no locks.
    pub fn of(file: File) -> FileLock {
        FileLock(file)
    }
}

impl Deref for FileLock {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // else it ends with the last descriptor
        let _ = self.0.unlock();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_given_back_is_free_though_another_descriptor_is_open() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        let open = || File::options().write(true).open(file.path()).expect("opened");
        let lock = FileLock::try_take(open()).expect("free");
        let inherited = lock.try_clone().expect("what a new process has");
        assert!(FileLock::try_take(open()).is_err());
        drop(lock);
        assert!(FileLock::try_take(open()).is_ok());
        drop(inherited);
    }
}
