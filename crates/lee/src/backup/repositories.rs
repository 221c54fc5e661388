//! Repositories: made and opened with the password that a file has.

use crate::control::server::failure;
use crate::fail::text;
use crate::system;
use leeward_env::Env;
use leeward_restic::files;
use leeward_restic::lock::Holder;
use leeward_restic::repository::Repository;
use leeward_restic::{Error, ErrorKind};
use leeward_volume::admin::Failure;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// Longest file of a password.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// For a person, as the control socket tells it.
pub fn refusal(e: &Error) -> Failure {
    let errno = match e.kind {
        ErrorKind::NoRepository => libc::ENOENT,
        ErrorKind::Password => libc::EACCES,
        ErrorKind::Locked => libc::EBUSY,
        ErrorKind::Full => libc::ENOSPC,
        ErrorKind::Stopped => libc::EINTR,
        ErrorKind::Failed => libc::EINVAL,
        ErrorKind::Place | ErrorKind::Damaged | ErrorKind::Source => libc::EIO,
    };
    failure(errno, &e.text)
}

/// The password that a file has, as restic reads it.
pub fn password(path: &str) -> Result<String, Failure> {
    let failed = |why: String| failure(libc::EACCES, &format!("the file of the password, {path}: {why}"));
    let file = File::open(path).map_err(|e| failed(text(&e)))?;
    let stat = file.metadata().map_err(|e| failed(text(&e)))?;
    if stat.is_file() && stat.mode() & 0o007 != 0 {
        return Err(failed("everybody may open it: chmod 600 it".into()));
    }
    let mut bytes = Vec::new();
    file.take(PASSWORD_BYTES_MAX).read_to_end(&mut bytes).map_err(|e| failed(text(&e)))?;
    let password = String::from_utf8(bytes).map_err(|_| failed("it is not UTF-8".into()))?;
    match password.trim() {
        "" => Err(failed("it is empty: write the password into it".into())),
        password => Ok(password.into()),
    }
}

/// Makes sure that there is a repository which the password opens.
pub fn make(env: &Env, to: &str, password_file: &str) -> Result<(), Failure> {
    let password = password(password_file)?;
    let made = files::open(to, true).and_then(|files| {
        if !Repository::exists(&files)? {
            Repository::create(env, &files, &password, &system::host())?;
        }
        Repository::open(env, &files, &password)
    });
    made.map(drop).map_err(|e| refusal(&e))
}

/// Opens a repository.
pub fn open(env: &Env, to: &str, password_file: &str) -> Result<Arc<Repository>, Failure> {
    let password = password(password_file)?;
    let opened = files::open(to, false).and_then(|files| Repository::open(env, &files, &password));
    opened.map(Arc::new).map_err(|e| match e.kind {
        ErrorKind::NoRepository => {
            let more = "is it mounted, or was it removed? A new one is made by lee backup add";
            failure(libc::ENOENT, &format!("{e}: {more}"))
        }
        _ => refusal(&e),
    })
}

/// Who locks a repository: this machine, and in whose name.
pub fn holder(username: String) -> Holder {
    Holder { hostname: system::host(), username }
}
