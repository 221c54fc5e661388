//! The content of a file: compared, or copied with its holes.

use super::pass::{Pass, Worker};
use super::problem::{OnSide, Problem};
use crate::sys::{Stat, data_ranges, stat_file};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Bytes that are read at once.
pub(super) const READ_BYTES: usize = 1 << 20;
/// Zeros are looked for in pieces of this size.
const ZEROS_BYTES: usize = 4 << 10;
/// A file that changes while it is copied is copied so often at most.
const TRIES: usize = 3;

/// A copy.
pub(super) struct Copied {
    /// The source as it was when the last try began. Of what may be torn the target gets this time,
    /// which is no longer that of the source, so the next pass copies again.
    pub before: Stat,
    /// Whether it was the same at the end.
    pub settled: bool,
}

impl Pass {
    /// Makes the content of `to` that of `from`.
    pub(super) fn copy(
        &self,
        worker: &mut Worker,
        from: &File,
        to: &File,
        is_new: bool,
    ) -> Result<Copied, Problem> {
        let mut before = stat_file(from).source()?;
        let mut tries = 1;
        loop {
            if !is_new || tries > 1 {
                to.set_len(0).target()?;
            }
            let whole = self.copy_once(worker, from, to, &before)?;
            let after = stat_file(from).source()?;
            let settled = whole && after.is_unchanged_since(&before);
            if settled || tries == TRIES {
                return Ok(Copied { before, settled });
            }
            before = after;
            tries += 1;
        }
    }

    /// Returns whether the file has as many bytes as it says.
    fn copy_once(&self, worker: &mut Worker, from: &File, to: &File, stat: &Stat) -> Result<bool, Problem> {
        let ranges = ranges(from, stat).source()?;
        // a file system that knows no holes and yet allocates less
        let find_zeros = stat.is_sparse() && ranges == [(0, stat.size)];
        let mut end = 0;
        for (start, length) in ranges {
            let mut at = start;
            while at < start + length {
                self.check_over()?;
                let wanted = (start + length - at).min(READ_BYTES as u64) as usize;
                let got = read_some(from, &mut worker.buffer[..wanted], at).source()?;
                if got == 0 {
                    return Ok(false);
                }
                end = write(to, &worker.buffer[..got], at, find_zeros).target()?.max(end);
                self.counters.add_bytes(got);
                at += got as u64;
            }
        }
        if end < stat.size {
            to.set_len(stat.size).target()?;
        }
        Ok(true)
    }

    /// Whether both have the same content: only what at least one of them has as data is read. Says
    /// no if the source changes meanwhile.
    pub(super) fn is_same_content(
        &self,
        worker: &mut Worker,
        from: &File,
        to: &File,
    ) -> Result<bool, Problem> {
        let before = stat_file(from).source()?;
        let there = stat_file(to).target()?;
        if there.size != before.size {
            return Ok(false);
        }
        for range in united(ranges(from, &before).source()?, ranges(to, &there).target()?) {
            if !self.is_same_range(worker, from, to, range)? {
                return Ok(false);
            }
        }
        Ok(stat_file(from).source()?.is_unchanged_since(&before))
    }

    fn is_same_range(
        &self,
        worker: &mut Worker,
        from: &File,
        to: &File,
        (start, length): (u64, u64),
    ) -> Result<bool, Problem> {
        let (mut at, end) = (start, start + length);
        while at < end {
            self.check_over()?;
            let wanted = (end - at).min(READ_BYTES as u64) as usize;
            let ours = &mut worker.buffer[..wanted];
            let got = read_whole(from, ours, at).source()?;
            let theirs = &mut worker.second[..wanted];
            if read_whole(to, theirs, at).target()? != got || ours[..got] != theirs[..got] || got < wanted {
                return Ok(false);
            }
            self.counters.add_bytes(got);
            at += got as u64;
        }
        Ok(true)
    }
}

/// Where a file has data.
fn ranges(file: &File, stat: &Stat) -> io::Result<Vec<(u64, u64)>> {
    if stat.is_sparse() { data_ranges(file, stat.size) } else { Ok(vec![(0, stat.size)]) }
}

/// What is in one range or another, in order: pairs of offset and length.
fn united(one: Vec<(u64, u64)>, two: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut all = [one, two].concat();
    all.sort_unstable();
    let mut united: Vec<(u64, u64)> = Vec::with_capacity(all.len());
    for (start, length) in all {
        match united.last_mut() {
            Some((at, last)) if start <= *at + *last => *last = (*last).max(start + length - *at),
            _ => united.push((start, length)),
        }
    }
    united
}

fn read_some(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    loop {
        match file.read_at(buffer, at) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

/// Reads until the buffer is full or the file ends.
fn read_whole(file: &File, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match read_some(file, &mut buffer[got..], at + got as u64)? {
            0 => break,
            more => got += more,
        }
    }
    Ok(got)
}

/// Writes bytes, if wanted without pieces of zeros. Returns where the last written byte ends.
fn write(file: &File, bytes: &[u8], at: u64, leave_zeros: bool) -> io::Result<u64> {
    if !leave_zeros {
        file.write_all_at(bytes, at)?;
        return Ok(at + bytes.len() as u64);
    }
    let mut end = 0;
    for (n, piece) in bytes.chunks(ZEROS_BYTES).enumerate() {
        if piece.iter().any(|b| *b != 0) {
            let at = at + (n * ZEROS_BYTES) as u64;
            file.write_all_at(piece, at)?;
            end = at + piece.len() as u64;
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_united() {
        assert_eq!(united(vec![(0, 4), (10, 2)], vec![(2, 4), (6, 1), (20, 1)]), [(0, 7), (10, 2), (20, 1)]);
        assert_eq!(united(vec![(0, 9)], vec![(3, 2)]), [(0, 9)]);
        assert_eq!(united(Vec::new(), Vec::new()), []);
    }
}
