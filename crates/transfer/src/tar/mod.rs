//! Archives in the pax format of POSIX.1-2001, which GNU tar, bsdtar and Python unpack.
//!
//! What does not fit the old header stands in records before it (`header`). Extended attributes are
//! records `SCHILY.xattr.*`, ACLs `SCHILY.acl.*`, flags `SCHILY.fflags`: the names that star began
//! and GNU tar and libarchive read. Files with holes have GNU's format 1.0 (`sparse`).

mod header;
mod sparse;

pub use header::{Header, Type};
pub use sparse::map;

/// Headers and contents begin at multiples of this.
pub const BLOCK: u64 = 512;

/// Zeros that fill the last block of so many bytes.
pub fn padding(bytes: u64) -> &'static [u8] {
    static ZEROS: [u8; BLOCK as usize] = [0; BLOCK as usize];
    &ZEROS[..(bytes.next_multiple_of(BLOCK) - bytes) as usize]
}

/// The end of an archive that has so many bytes: two empty blocks, then up to a multiple of the
/// record of 10 KiB that tapes have.
pub fn end(written: u64) -> Vec<u8> {
    const RECORD: u64 = 20 * BLOCK;
    vec![0; ((written + 2 * BLOCK).next_multiple_of(RECORD) - written) as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_end_at_a_record() {
        assert_eq!(end(0).len(), 10240);
        assert_eq!(end(10240 - 1024).len(), 1024);
        assert_eq!(end(10240 - 512).len(), 512 + 10240);
        assert_eq!((padding(0).len(), padding(1).len(), padding(512).len()), (0, 511, 0));
    }
}
