//! XML of answers, written piece by piece: a directory of a million names is never a document in
//! memory.

use super::Name;
use super::tree::is_allowed;
use http::StatusCode;
use std::borrow::Cow;
use std::fmt::Write as _;

/// `Content-Type` of all these answers.
pub const CONTENT_TYPE: &str = "application/xml; charset=utf-8";
/// How a `multistatus` begins.
pub const BEGIN: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:multistatus xmlns:D=\"DAV:\">\n";
/// How it ends.
pub const END: &str = "</D:multistatus>\n";

/// Escapes text for a document; characters that XML cannot have become U+FFFD.
pub fn escaped(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_allowed) {
        return quick_xml::escape::escape(text);
    }
    let shown: String = text.chars().map(|c| if is_allowed(c) { c } else { '\u{fffd}' }).collect();
    Cow::Owned(quick_xml::escape::escape(shown).into_owned())
}

/// A property with its value as XML, or without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Property {
    /// Name of the property.
    pub name: Name,
    /// Self-contained XML, or XML for a document that binds `D` to WebDAV.
    pub value: Option<String>,
}

impl Property {
    /// One of WebDAV's own.
    pub fn dav(local: &str, value: impl Into<String>) -> Property {
        Property { name: Name::dav(local), value: Some(value.into()) }
    }

    fn write(&self, out: &mut String) {
        let Name { space, local } = &self.name;
        let (open, close) = match &**space {
            super::DAV => (format!("D:{local}"), format!("D:{local}")),
            // the prefix, not the default: values name their own namespace
            "" => (local.clone(), local.clone()),
            space => (format!("P:{local} xmlns:P=\"{}\"", escaped(space)), format!("P:{local}")),
        };
        let _ = match self.value.as_deref() {
            None | Some("") => write!(out, "<{open}/>"),
            Some(value) => write!(out, "<{open}>{value}</{close}>"),
        };
    }
}

/// Properties of one status.
pub type PropStat = (StatusCode, Vec<Property>);

/// The answer for one resource: its properties by status.
pub fn response(out: &mut String, href: &str, propstats: &[PropStat]) {
    let _ = write!(out, "<D:response><D:href>{}</D:href>", escaped(href));
    for (status, properties) in propstats.iter().filter(|(_, properties)| !properties.is_empty()) {
        out.push_str("<D:propstat><D:prop>");
        properties.iter().for_each(|property| property.write(out));
        let _ = write!(out, "</D:prop><D:status>{}</D:status></D:propstat>", line(*status));
    }
    if propstats.iter().all(|(_, properties)| properties.is_empty()) {
        // no property was asked for, and the resource exists
        let _ =
            write!(out, "<D:propstat><D:prop/><D:status>{}</D:status></D:propstat>", line(StatusCode::OK));
    }
    out.push_str("</D:response>\n");
}

/// The answer for one resource for which something failed.
pub fn failed(out: &mut String, href: &str, status: StatusCode, why: &str) {
    let (href, why) = (escaped(href), escaped(why));
    let _ = writeln!(
        out,
        "<D:response><D:href>{href}</D:href><D:status>{}</D:status>\
         <D:responsedescription>{why}</D:responsedescription></D:response>",
        line(status)
    );
}

/// The body of an error: the condition of RFC 4918 that was not met, with its resource, and a text.
pub fn error(condition: &str, href: Option<&str>, why: &str) -> String {
    let inner = href.map(|href| format!("<D:href>{}</D:href>", escaped(href))).unwrap_or_default();
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:error xmlns:D=\"DAV:\"><D:{condition}>{inner}</D:{condition}>\
         <L:message xmlns:L=\"leeward:\">{}</L:message></D:error>\n",
        escaped(why)
    )
}

fn line(status: StatusCode) -> String {
    format!("HTTP/1.1 {} {}", status.as_u16(), status.canonical_reason().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xml::tree::Element;

    #[test]
    fn an_answer_is_well_formed_and_says_what_it_should() {
        let odd = Property {
            name: Name { space: "u:\"<".into(), local: "x".into() },
            value: Some("<y xmlns=\"DAV:\">&lt;</y>".into()),
        };
        let none = Property { name: Name { space: String::new(), local: "z".into() }, value: None };
        let mut out = BEGIN.to_string();
        let found = vec![Property::dav("displayname", escaped("a<\u{1}b")), odd.clone()];
        response(&mut out, "/a%20b&", &[(StatusCode::OK, found), (StatusCode::NOT_FOUND, vec![none])]);
        response(&mut out, "/c", &[(StatusCode::OK, vec![])]);
        failed(&mut out, "/d", StatusCode::LOCKED, "locked by <me>");
        out.push_str(END);

        let root = Element::parse(out.as_bytes()).expect(&out);
        let responses: Vec<_> = root.elements().collect();
        assert_eq!((root.name.local.as_str(), responses.len()), ("multistatus", 3));
        let text = |e: &Element| e.inner();
        assert_eq!(text(responses[0].child("href").unwrap()), "/a%20b&amp;");
        let propstats: Vec<_> = responses[0].elements().filter(|e| e.name.is("propstat")).collect();
        let prop = propstats[0].child("prop").unwrap();
        let values: Vec<_> = prop.elements().map(|e| (e.name.clone(), text(e))).collect();
        assert_eq!(values[0], (Name::dav("displayname"), "a&lt;\u{fffd}b".into()));
        assert_eq!(values[1], (odd.name, odd.value.unwrap()));
        assert_eq!(text(propstats[1].child("status").unwrap()), "HTTP/1.1 404 Not Found");
        assert_eq!(propstats[1].child("prop").unwrap().elements().next().unwrap().name.space, "");
        assert_eq!(text(responses[2].child("status").unwrap()), "HTTP/1.1 423 Locked");
    }

    #[test]
    fn an_error_names_its_condition() {
        let root = Element::parse(error("lock-token-submitted", Some("/a"), "no").as_bytes()).unwrap();
        assert_eq!(root.child("lock-token-submitted").unwrap().child("href").unwrap().inner(), "/a");
    }
}
