//! Where a store physically is, as far as one can tell: two stores of one redundancy group on one disk, or on one
//! server, are lost together.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a file system of this machine: the number of its device.
    Device(u64),
    /// On a server of this name.
    Host(String),
}

impl Place {
    /// Of a directory, or of the nearest one above it that is there.
    ///
    /// # Errors
    /// When not even the root can be looked at.
    pub fn of_dir(dir: &Path) -> io::Result<Place> {
        let mut error = None;
        for dir in dir.ancestors() {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            match std::fs::metadata(dir) {
                Ok(meta) => return Ok(Place::Device(meta.dev())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => error = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    /// Of an endpoint such as `https://rgw1.example:8000`, or a name with or without a port.
    pub fn of_endpoint(endpoint: &str) -> Place {
        let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let host = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
            Some((address, _)) => address,
            None => authority.split(':').next().unwrap_or_default(),
        };
        Place::Host(host.trim_end_matches('.').to_ascii_lowercase())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Device(dev) => write!(f, "disk {}:{}", major(*dev), minor(*dev)),
            Place::Host(host) => write!(f, "server {host}"),
        }
    }
}

/// As the kernel packs a device's number into 64 bits.
fn major(dev: u64) -> u64 {
    (dev >> 8 & 0xfff) | (dev >> 32 & !0xfff)
}

fn minor(dev: u64) -> u64 {
    (dev & 0xff) | (dev >> 12 & 0xffff_ff00)
}

/// Pairs of stores that are in one place, by position; the first of each place with every later one.
pub fn shared(places: &[Place]) -> Vec<(usize, usize)> {
    let first = |n: usize| places.iter().position(|place| *place == places[n]);
    (0..places.len()).filter_map(|n| first(n).filter(|first| *first < n).map(|first| (first, n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_disk() {
        let dir = tempfile::tempdir().unwrap();
        let one = Place::of_dir(dir.path()).unwrap();
        assert_eq!(Place::of_dir(&dir.path().join("not/there/yet")).unwrap(), one);
        let proc = Place::of_dir(Path::new("/proc")).unwrap();
        assert_ne!(proc, one);
        let places = [one.clone(), proc.clone(), one.clone(), proc, one];
        assert_eq!(shared(&places), [(0, 2), (1, 3), (0, 4)]);
    }

    #[test]
    fn endpoints_of_one_server() {
        let host = |name: &str| Place::Host(name.into());
        assert_eq!(Place::of_endpoint("https://RGW1.example:8000/bucket"), host("rgw1.example"));
        assert_eq!(Place::of_endpoint("rgw1.example."), host("rgw1.example"));
        assert_eq!(Place::of_endpoint("http://[::1]:9000"), host("::1"));
        assert_eq!(Place::of_endpoint("10.0.0.1:9000"), host("10.0.0.1"));
        assert_eq!(host("rgw1").to_string(), "server rgw1");
        assert_eq!(Place::Device(0x803).to_string(), "disk 8:3");
    }
}
