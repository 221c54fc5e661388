//! An operation that owns its bytes: a copy of an [`Op`] that outlives its request buffer.

use leeward_fs::Op;

/// An [`Op`] with its own copy of names and data.
#[derive(Clone, Debug)]
pub struct OwnedOp {
    /// The operation with empty byte strings.
    shape: Op<'static>,
    /// Its byte strings, one after the other.
    bytes: Box<[u8]>,
    /// Where each byte string ends.
    ends: Box<[usize]>,
}

impl OwnedOp {
    /// The operation again, borrowing from this copy.
    pub fn as_op(&self) -> Op<'_> {
        let (mut begin, mut ends) = (0, self.ends.iter());
        self.shape.with_bytes(&mut |_| {
            let end = *ends.next().expect("an end for each byte string");
            &self.bytes[std::mem::replace(&mut begin, end)..end]
        })
    }

    /// The operation with empty byte strings.
    pub fn shape(&self) -> Op<'static> {
        self.shape
    }

    /// Bytes that it owns.
    pub fn byte_count(&self) -> usize {
        self.bytes.len()
    }
}

impl From<Op<'_>> for OwnedOp {
    fn from(op: Op<'_>) -> OwnedOp {
        let mut ends = Vec::new();
        let shape = op.with_bytes(&mut |bytes| {
            ends.push(ends.last().unwrap_or(&0) + bytes.len());
            b""
        });
        let mut all = Vec::with_capacity(ends.last().copied().unwrap_or(0));
        op.with_bytes(&mut |bytes| {
            all.extend_from_slice(bytes);
            b""
        });
        OwnedOp { shape, bytes: all.into(), ends: ends.into() }
    }
}
