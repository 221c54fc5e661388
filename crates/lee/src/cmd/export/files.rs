//! Where archive and manifest go. A file has its name only when it is whole and durable: until then
//! it is beside that, under a name of its own, and goes with the process.

use crate::fail::{Fail, text};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What is added to the name of an archive for that of its manifest.
const BESIDE: &str = ".sha256sums";

fn failed(path: &Path, e: &io::Error) -> Fail {
    Fail::new(format!("{}: cannot be written: {}", path.display(), text(e)))
}

/// A file that replaces another one whole. Only its owner may read it: it has other people's data.
pub(super) struct NewFile {
    file: File,
    path: PathBuf,
    /// Its name until it is kept.
    partial: Option<PathBuf>,
}

impl NewFile {
    fn new(path: &Path) -> Result<NewFile, Fail> {
        let name = path.file_name().ok_or_else(|| Fail::usage(format!("{}: is no file", path.display())))?;
        let mut options = File::options();
        options.read(true).write(true).mode(0o600);
        let there = std::fs::metadata(path);
        if there.as_ref().is_ok_and(std::fs::Metadata::is_dir) {
            return Err(Fail::usage(format!("{}: is a directory: name a file", path.display())));
        }
        // a tape or a pipe cannot be replaced
        if there.is_ok_and(|there| !there.is_file()) {
            let file = File::options().write(true).open(path).map_err(|e| failed(path, &e))?;
            return Ok(NewFile { file, path: path.into(), partial: None });
        }
        let mut partial = OsString::from(".");
        partial.push(name);
        partial.push(format!(".lee-{}", std::process::id()));
        let partial = path.with_file_name(partial);
        let file = options.create_new(true).open(&partial).map_err(|e| failed(path, &e))?;
        Ok(NewFile { file, path: path.into(), partial: Some(partial) })
    }

    /// Makes its content durable.
    fn sync(&self) -> Result<(), Fail> {
        match self.partial {
            Some(_) => self.file.sync_all().map_err(|e| failed(&self.path, &e)),
            None => Ok(()),
        }
    }

    /// Gives it its name. Its content is durable already.
    fn keep(mut self) -> Result<PathBuf, Fail> {
        if let Some(partial) = &self.partial {
            let directory = match self.path.parent() {
                Some(above) if !above.as_os_str().is_empty() => above,
                _ => Path::new("."),
            };
            std::fs::rename(partial, &self.path)
                .and_then(|()| File::open(directory)?.sync_all())
                .map_err(|e| failed(&self.path, &e))?;
        }
        self.partial = None;
        Ok(self.path.clone())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            let _ = std::fs::remove_file(partial);
        }
    }
}

/// Where the archive goes.
pub(super) enum Archive {
    Output,
    File(NewFile),
}

impl Archive {
    /// The file of this name; `-` is standard output.
    pub(super) fn new(path: &Path) -> Result<Archive, Fail> {
        if path == Path::new("-") { Ok(Archive::Output) } else { NewFile::new(path).map(Archive::File) }
    }

    pub(super) fn is_output(&self) -> bool {
        matches!(self, Archive::Output)
    }

    /// Whether it is a file with a place beside it, not a tape or a stream.
    pub(super) fn is_replaced(&self) -> bool {
        matches!(self, Archive::File(NewFile { partial: Some(_), .. }))
    }

    pub(super) fn sink(&self) -> Result<Box<dyn Write + Send>, Fail> {
        match self {
            Archive::Output => Ok(Box::new(io::stdout())),
            Archive::File(new) => {
                let file = new.file.try_clone().map_err(|e| failed(&new.path, &e))?;
                Ok(Box::new(file))
            }
        }
    }

    fn sync(&self) -> Result<(), Fail> {
        match self {
            Archive::Output => Ok(()),
            Archive::File(new) => new.sync(),
        }
    }

    fn keep(self) -> Result<(), Fail> {
        match self {
            Archive::Output => Ok(()),
            Archive::File(new) => new.keep().map(drop),
        }
    }
}

/// Where the manifest goes: to a file, or to one without a name until it is in the archive.
pub(super) enum Manifest {
    Unnamed(File),
    File(NewFile),
}

impl Manifest {
    /// The file of this name, or one beside the archive.
    pub(super) fn new(path: Option<&Path>, archive: &Path) -> Result<Manifest, Fail> {
        let mut beside = archive.as_os_str().to_os_string();
        beside.push(BESIDE);
        NewFile::new(path.unwrap_or(Path::new(&beside))).map(Manifest::File)
    }

    pub(super) fn without_name() -> Result<Manifest, Fail> {
        let dir = std::env::temp_dir();
        let mut options = File::options();
        options.read(true).write(true).mode(0o600).custom_flags(libc::O_TMPFILE);
        options.open(&dir).map(Manifest::Unnamed).map_err(|e| failed(&dir, &e))
    }

    pub(super) fn file(&mut self) -> &mut File {
        match self {
            Manifest::Unnamed(file) => file,
            Manifest::File(new) => &mut new.file,
        }
    }

    fn sync(&self) -> Result<(), Fail> {
        match self {
            Manifest::Unnamed(_) => Ok(()),
            Manifest::File(new) => new.sync(),
        }
    }

    /// Gives it its name, which is returned.
    fn keep(self) -> Result<Option<PathBuf>, Fail> {
        match self {
            Manifest::Unnamed(_) => Ok(None),
            Manifest::File(new) => new.keep().map(Some),
        }
    }
}

/// Gives both their names, which is done only when both are durable. Returns that of the manifest.
///
/// # Errors
/// When one of them cannot be made durable or renamed.
pub(super) fn keep(archive: Archive, manifest: Manifest) -> Result<Option<PathBuf>, Fail> {
    archive.sync()?;
    manifest.sync()?;
    archive.keep()?;
    manifest.keep()
}
