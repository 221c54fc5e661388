//! A directory for people with a browser: one page, written piece by piece, without scripts.

use crate::path::DavPath;
use leeward_env::dates::second;
use std::fmt::Write as _;

/// `Content-Type` of the page.
pub const CONTENT_TYPE: &str = "text/html; charset=utf-8";

/// The end of the page.
pub const END: &str = "</table>\n</body>\n</html>\n";

const STYLE: &str = "body{font-family:sans-serif;margin:2em}table{border-collapse:collapse}\
                     td,th{text-align:left;padding:.15em 1.2em .15em 0}td.n{text-align:right}\
                     th{border-bottom:1px solid #888}a{text-decoration:none}@media(prefers-color-scheme:dark){\
                     body{background:#111;color:#ddd}a{color:#8bf}}";

/// The page up to the first entry: title, and a link to the directory above.
pub fn begin(path: &DavPath) -> String {
    let title = escaped(&path.shown());
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"><title>{title}</title>\
         <style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n<table>\n\
         <tr><th>Name</th><th>Bytes</th><th>Changed (UTC)</th></tr>\n"
    );
    if let Some(parent) = path.parent() {
        let _ = writeln!(out, "<tr><td><a href=\"{}\">..</a></td><td></td><td></td></tr>", parent.encoded());
    }
    out
}

/// One entry.
pub fn entry(out: &mut String, dir: &DavPath, name: &[u8], is_dir: bool, bytes: u64, modified: i64) {
    let href = dir.join(name).with_slash(is_dir).encoded();
    let (shown, slash) = (String::from_utf8_lossy(name), if is_dir { "/" } else { "" });
    let size = if is_dir { String::new() } else { bytes.to_string() };
    let when = second(modified).replace('T', " ").replace('Z', "");
    let _ = writeln!(
        out,
        "<tr><td><a href=\"{href}\">{}{slash}</a></td><td class=\"n\">{size}</td><td>{when}</td></tr>",
        escaped(&shown)
    );
}

fn escaped(text: &str) -> String {
    quick_xml::escape::escape(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_become_markup() {
        let dir = DavPath::parse("/a%3Cb").unwrap();
        let mut page = begin(&dir);
        entry(&mut page, &dir, b"<script>\"&'", false, 12, 0);
        entry(&mut page, &dir, b"\xffd", true, 3, 0);
        page.push_str(END);
        assert!(page.contains("<title>/a&lt;b</title>"), "{page}");
        assert!(
            page.contains("href=\"/a%3Cb/%3Cscript%3E%22%26%27\">&lt;script&gt;&quot;&amp;&apos;</a>"),
            "{page}"
        );
        assert!(page.contains("href=\"/a%3Cb/%FFd/\">\u{fffd}d/</a></td><td class=\"n\"></td>"), "{page}");
        assert!(page.contains("1970-01-01 00:00:00") && page.contains("<a href=\"/\">..</a>"), "{page}");
    }
}
