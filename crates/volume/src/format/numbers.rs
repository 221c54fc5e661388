//! Numbers in records that have many of them.

use crate::format::inode::Reader;

/// A number in as many bytes as it needs: seven bits each, the lowest first, the highest bit set in
/// all but the last.
pub fn put_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Reads it.
pub(crate) fn take_number(r: &mut Reader<'_>) -> Option<u64> {
    let mut n = 0u64;
    for shift in (0..64).step_by(7) {
        let [byte] = r.take()?;
        n |= u64::from(byte & 0x7F).checked_shl(shift)?;
        if byte < 0x80 {
            return Some(n);
        }
    }
    None
}

/// A difference as a number: small for small ones of both signs.
pub fn put_difference(n: i64, out: &mut Vec<u8>) {
    put_number((n << 1 ^ n >> 63) as u64, out);
}

/// Reads it.
pub(crate) fn take_difference(r: &mut Reader<'_>) -> Option<i64> {
    let n = take_number(r)?;
    Some((n >> 1) as i64 ^ -((n & 1) as i64))
}

/// Bytes behind their number.
pub fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    put_number(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

/// Reads them.
pub(crate) fn take_bytes(r: &mut Reader<'_>) -> Option<Box<[u8]>> {
    let len = take_number(r)?;
    Some(r.bytes(usize::try_from(len).ok()?)?.into())
}
