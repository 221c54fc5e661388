//! The map of a file with holes, in GNU's format 1.0: before the data stand, as decimal lines, how
//! many ranges there are, then offset and length of each. The last one ends where the file does.

use super::padding;

/// The map for the ranges with data of a file of `size` bytes, filled up to whole blocks.
pub fn map(ranges: &[(u64, u64)], size: u64) -> Vec<u8> {
    let ends_in_data = ranges.last().is_some_and(|(at, length)| at + length == size);
    let end = (!ends_in_data).then_some((size, 0));
    let all: Vec<(u64, u64)> = ranges.iter().copied().chain(end).collect();
    let lines = all.iter().map(|(at, length)| format!("{at}\n{length}\n"));
    let mut map = format!("{}\n{}", all.len(), lines.collect::<String>()).into_bytes();
    map.extend_from_slice(padding(map.len() as u64));
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_end_where_the_file_ends() {
        let text = |ranges: &[(u64, u64)], size| {
            let map = map(ranges, size);
            assert_eq!(map.len() % 512, 0);
            String::from_utf8_lossy(&map).trim_end_matches('\0').to_string()
        };
        assert_eq!(text(&[], 9), "1\n9\n0\n");
        assert_eq!(text(&[(0, 4)], 9), "2\n0\n4\n9\n0\n");
        assert_eq!(text(&[(5, 4)], 9), "1\n5\n4\n");
    }
}
