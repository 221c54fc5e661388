//! The physical location of a store, as far as it can be found out. Two stores of one redundancy
//! group on one disk or one server are lost together.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Where a store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreLocation {
    /// On a file system of this machine; its device number.
    Device(u64),
    /// On a server of this name.
    Host(String),
}

impl StoreLocation {
    /// The location of a directory, or of its nearest existing parent.
    ///
    /// # Errors
    /// When not even the root can be looked at.
    pub fn of_dir(dir: &Path) -> io::Result<StoreLocation> {
        let mut error = None;
        for dir in dir.ancestors() {
            let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
            match std::fs::metadata(dir) {
                Ok(meta) => return Ok(StoreLocation::Device(meta.dev())),
                Err(e) if e.kind() == io::ErrorKind::NotFound => error = Some(e),
                Err(e) => return Err(e),
            }
        }
        Err(error.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
    }

    /// The location of an endpoint such as `https://rgw1.example:8000`, or of a name with or
    /// without a port.
    pub fn of_endpoint(endpoint: &str) -> StoreLocation {
        let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
        let authority = rest.split(['/', '?']).next().unwrap_or_default();
        let host = match authority.strip_prefix('[').and_then(|v6| v6.split_once(']')) {
            Some((address, _)) => address,
            None => authority.split(':').next().unwrap_or_default(),
        };
        StoreLocation::Host(host.trim_end_matches('.').to_ascii_lowercase())
    }
}

impl fmt::Display for StoreLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreLocation::Device(dev) => write!(f, "disk {}:{}", major(*dev), minor(*dev)),
            StoreLocation::Host(host) => write!(f, "server {host}"),
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

/// Pairs of stores with the same location, by position: the first store of each location with every
/// later one.
pub fn shared(places: &[StoreLocation]) -> Vec<(usize, usize)> {
    let first = |n: usize| places.iter().position(|place| *place == places[n]);
    (0..places.len()).filter_map(|n| first(n).filter(|first| *first < n).map(|first| (first, n))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_one_disk() {
        let dir = tempfile::tempdir().unwrap();
        let one = StoreLocation::of_dir(dir.path()).unwrap();
        assert_eq!(StoreLocation::of_dir(&dir.path().join("not/there/yet")).unwrap(), one);
        let proc = StoreLocation::of_dir(Path::new("/proc")).unwrap();
        assert_ne!(proc, one);
        let places = [one.clone(), proc.clone(), one.clone(), proc, one];
        assert_eq!(shared(&places), [(0, 2), (1, 3), (0, 4)]);
    }

    #[test]
    fn endpoints_of_one_server() {
        let host = |name: &str| StoreLocation::Host(name.into());
        assert_eq!(StoreLocation::of_endpoint("https://RGW1.example:8000/bucket"), host("rgw1.example"));
        assert_eq!(StoreLocation::of_endpoint("rgw1.example."), host("rgw1.example"));
        assert_eq!(StoreLocation::of_endpoint("http://[::1]:9000"), host("::1"));
        assert_eq!(StoreLocation::of_endpoint("10.0.0.1:9000"), host("10.0.0.1"));
        assert_eq!(host("rgw1").to_string(), "server rgw1");
        assert_eq!(StoreLocation::Device(0x803).to_string(), "disk 8:3");
    }
}
