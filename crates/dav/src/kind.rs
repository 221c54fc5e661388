//! The type of a file by the end of its name, for browsers.

const KINDS: [(&[u8], &str); 28] = [
    (b"c", "text/plain; charset=utf-8"),
    (b"css", "text/css; charset=utf-8"),
    (b"csv", "text/csv; charset=utf-8"),
    (b"gif", "image/gif"),
    (b"gz", "application/gzip"),
    (b"h", "text/plain; charset=utf-8"),
    (b"htm", "text/html; charset=utf-8"),
    (b"html", "text/html; charset=utf-8"),
    (b"jpeg", "image/jpeg"),
    (b"jpg", "image/jpeg"),
    (b"js", "text/javascript; charset=utf-8"),
    (b"json", "application/json"),
    (b"log", "text/plain; charset=utf-8"),
    (b"md", "text/plain; charset=utf-8"),
    (b"mp4", "video/mp4"),
    (b"pdf", "application/pdf"),
    (b"png", "image/png"),
    (b"py", "text/plain; charset=utf-8"),
    (b"rs", "text/plain; charset=utf-8"),
    (b"sh", "text/plain; charset=utf-8"),
    (b"svg", "image/svg+xml"),
    (b"tar", "application/x-tar"),
    (b"txt", "text/plain; charset=utf-8"),
    (b"webp", "image/webp"),
    (b"xml", "text/xml; charset=utf-8"),
    (b"yaml", "text/plain; charset=utf-8"),
    (b"yml", "text/plain; charset=utf-8"),
    (b"zip", "application/zip"),
];

/// `Content-Type` of a file with this name.
pub fn of(name: &[u8]) -> &'static str {
    let end = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default().to_ascii_lowercase();
    let known = KINDS.binary_search_by(|(known, _)| (**known).cmp(&end[..])).ok();
    known.filter(|_| end.len() < name.len()).map_or("application/octet-stream", |n| KINDS[n].1)
}

#[cfg(test)]
mod tests {
    #[test]
    fn ends_of_names() {
        assert!(super::KINDS.is_sorted());
        assert_eq!(super::of(b"a.b.PDF"), "application/pdf");
        assert_eq!(
            (super::of(b"txt"), super::of(b"x.y")),
            ("application/octet-stream", "application/octet-stream")
        );
    }
}
