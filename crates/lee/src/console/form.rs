//! What a browser sends: fields of a query or a form, cookies; and paths in addresses.
//!
//! Names in a cell are bytes. In a field a path is text that has been percent-encoded once, so that
//! a form can carry any name; in an address that text is encoded as all fields are.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_decode_str, utf8_percent_encode};

/// Most fields that are read.
const FIELDS_MAX: usize = 100;
/// What a path is written with as it is.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// Fields by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Form(Vec<(String, String)>);

impl Form {
    /// Reads `a=b&c=d`. What is no UTF-8 is replaced.
    pub fn parse(text: &[u8]) -> Form {
        let part = |bytes: &[u8]| {
            let spaced: Vec<u8> = bytes.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
            percent_decode(&spaced).decode_utf8_lossy().into_owned()
        };
        let field = |field: &[u8]| {
            let mut parts = field.splitn(2, |b| *b == b'=');
            let (name, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            (part(name), part(value))
        };
        Form(text.split(|b| *b == b'&').filter(|f| !f.is_empty()).take(FIELDS_MAX).map(field).collect())
    }

    /// The first field of this name; empty: there is none.
    pub fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(of, _)| of == name).map_or("", |(_, value)| value)
    }

    /// The field as a number.
    pub fn number<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).parse().ok()
    }

    /// The path in a field, as bytes.
    pub fn path(&self, name: &str) -> Vec<u8> {
        percent_decode_str(self.get(name)).collect()
    }
}

/// A path, as fields carry it.
pub fn path_text(path: &[u8]) -> String {
    percent_encoding::percent_encode(path, PATH).to_string()
}

/// A value, as addresses carry it.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, PATH).to_string()
}

/// An address of the console with these fields.
pub fn link(page: &str, fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    let query = if fields.is_empty() { String::new() } else { format!("?{}", fields.join("&")) };
    format!("/console{page}{query}")
}

/// The cookie of this name in the values of `Cookie`. Where there are several none counts: somebody
/// may have added one.
pub fn cookie<'a>(headers: impl Iterator<Item = &'a str>, name: &str) -> Option<&'a str> {
    let pairs = headers.flat_map(|header| header.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut values = pairs.filter(|(of, _)| *of == name).map(|(_, value)| value);
    values.next().filter(|_| values.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_text_and_paths_are_bytes() {
        let form = Form::parse(b"a=1+2%2b3&path=/x%2520y%25FF&a=second&empty&=none&%41=big");
        assert_eq!(
            (form.get("a"), form.get("empty"), form.get("gone"), form.get("A")),
            ("1 2+3", "", "", "big")
        );
        assert_eq!(form.path("path"), b"/x y\xff");
        assert_eq!(form.number::<u32>("a"), None);
        let many: String = (0..1000).map(|n| format!("f{n}=1&")).collect();
        assert_eq!(Form::parse(many.as_bytes()).0.len(), FIELDS_MAX);
    }

    #[test]
    fn an_address_gives_back_what_went_in() {
        for path in [&b"/a b/\xff%&=+#?\"<"[..], b"/", b"", b"/\xc3\xa4/~x-y_z.t"] {
            let address = link("/files", &[("path", &path_text(path)), ("q", "a&b=c d+%")]);
            let query = address.split_once('?').expect("a query").1;
            let form = Form::parse(query.as_bytes());
            assert_eq!((form.path("path"), form.get("q")), (path.to_vec(), "a&b=c d+%"));
            assert!(!address.contains(['"', '<', ' ', '+']), "{address}");
        }
        assert_eq!(link("/files", &[("path", "/a/b.txt")]), "/console/files?path=/a/b.txt");
    }

    #[test]
    fn a_cookie_counts_that_is_there_once() {
        let find = |headers: &[&'static str]| cookie(headers.iter().copied(), "lee");
        assert_eq!(find(&["a=b; lee=1", "c=d"]), Some("1"));
        assert_eq!(find(&["lee=1; lee=2"]), None);
        assert_eq!(find(&["lee=1", "lee=2"]), None);
        assert_eq!(find(&["xlee=1; lee", ""]), None);
    }
}
