//! Bodies of requests as trees of elements.
//!
//! The number of elements and the depth of a tree are limited, and the body has a limit already.
//! There is no document type, so nothing is fetched. Parsed XML is written again with the namespace
//! named at each element, so a property's value means the same wherever it is put later. A
//! namespace is declared once and counts for many names, so the total length of all names with
//! their namespaces is limited, too.

use super::Name;
use quick_xml::NsReader;
use quick_xml::escape::{escape, resolve_predefined_entity};
use quick_xml::events::{BytesRef, BytesStart, Event};
use quick_xml::name::ResolveResult;
use std::fmt::Write as _;

/// Most elements of a request.
const ELEMENTS_MAX: usize = 4096;
/// Most elements within each other.
const DEPTH_MAX: usize = 32;
/// Most attributes of an element.
const ATTRIBUTES_MAX: usize = 32;
/// Longest namespace, bytes.
const SPACE_BYTES_MAX: usize = 1 << 10;
/// Longest local name, bytes.
const LOCAL_BYTES_MAX: usize = 255;
/// Most bytes of all names of a request, each with its namespace.
const NAMES_BYTES_MAX: usize = 512 << 10;

/// Why a body is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the XML of the request is refused: {0}")]
pub struct BadXml(pub String);

/// An element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Name of the element.
    pub name: Name,
    /// Attributes, except those that declare namespaces.
    pub attributes: Vec<(Name, String)>,
    /// Its children, in order.
    pub content: Vec<Node>,
}

/// A child of an element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Another element.
    Element(Element),
    /// Text, with entities resolved.
    Text(String),
}

impl Element {
    /// Reads a whole document.
    ///
    /// # Errors
    /// It is not well-formed, has a document type, or is too large.
    pub fn parse(bytes: &[u8]) -> Result<Element, BadXml> {
        Parser::new(bytes)?.document()
    }

    /// The child elements.
    pub fn elements(&self) -> impl Iterator<Item = &Element> {
        self.content.iter().filter_map(|node| match node {
            Node::Element(element) => Some(element),
            Node::Text(_) => None,
        })
    }

    /// The first child element with this name of WebDAV's own.
    pub fn child(&self, local: &str) -> Option<&Element> {
        self.elements().find(|element| element.name.is(local))
    }

    /// Its content, as self-contained XML.
    pub fn inner(&self) -> String {
        let mut out = String::new();
        self.content.iter().for_each(|node| node.write(&mut out));
        out
    }

    /// The element as self-contained XML.
    pub fn outer(&self) -> String {
        let mut out = String::new();
        self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) {
        let local = &self.name.local;
        // a default namespace: an element without one says so
        let _ = write!(out, "<{local} xmlns=\"{}\"", escape(&*self.name.space));
        for (n, (name, value)) in self.attributes.iter().enumerate() {
            let value = escape(&**value);
            let _ = match &*name.space {
                "" => write!(out, " {}=\"{value}\"", name.local),
                XML => write!(out, " xml:{}=\"{value}\"", name.local),
                space => write!(out, " xmlns:a{n}=\"{}\" a{n}:{}=\"{value}\"", escape(space), name.local),
            };
        }
        if self.content.is_empty() {
            out.push_str("/>");
            return;
        }
        out.push('>');
        self.content.iter().for_each(|node| node.write(out));
        let _ = write!(out, "</{local}>");
    }
}

impl Node {
    fn write(&self, out: &mut String) {
        match self {
            Node::Element(element) => element.write(out),
            Node::Text(text) => out.push_str(&escape(&**text)),
        }
    }
}

/// The namespace of `xml:lang`.
const XML: &str = "http://www.w3.org/XML/1998/namespace";
/// The namespace of declarations.
const XMLNS: &str = "http://www.w3.org/2000/xmlns/";

struct Parser<'b> {
    reader: NsReader<&'b [u8]>,
    elements: usize,
    /// Bytes left for names.
    names_left: usize,
}

fn bad(why: impl ToString) -> BadXml {
    BadXml(why.to_string())
}

impl<'b> Parser<'b> {
    fn new(bytes: &'b [u8]) -> Result<Parser<'b>, BadXml> {
        let text = std::str::from_utf8(bytes).map_err(|_| bad("it is not UTF-8"))?;
        if text.chars().any(|c| !is_allowed(c)) {
            return Err(bad("it has a character that XML does not allow"));
        }
        Ok(Parser { reader: NsReader::from_reader(bytes), elements: 0, names_left: NAMES_BYTES_MAX })
    }

    fn document(mut self) -> Result<Element, BadXml> {
        let mut root = None;
        loop {
            match self.reader.read_event().map_err(bad)? {
                Event::Start(start) if root.is_none() => root = Some(self.element(&start, false, 1)?),
                Event::Empty(start) if root.is_none() => root = Some(self.element(&start, true, 1)?),
                Event::Eof => return root.ok_or_else(|| bad("it has no element")),
                Event::Text(text) if text.trim_ascii().is_empty() || text.trim_ascii() == b"\xef\xbb\xbf" => {
                }
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => {}
                Event::DocType(_) => return Err(bad("a document type is not allowed")),
                _ => return Err(bad("there is something outside of its element")),
            }
        }
    }

    fn element(&mut self, start: &BytesStart<'_>, empty: bool, depth: usize) -> Result<Element, BadXml> {
        self.elements += 1;
        if self.elements > ELEMENTS_MAX || depth > DEPTH_MAX {
            return Err(bad("it has too many elements"));
        }
        let (space, local) = self.reader.resolver().resolve_element(start.name());
        let name = name(space, local.as_ref(), &mut self.names_left)?;
        if [XML, XMLNS].contains(&&*name.space) {
            return Err(bad("an element has a namespace that is XML's own"));
        }
        let attributes = self.attributes(start)?;
        let content = if empty { Vec::new() } else { self.content(depth)? };
        Ok(Element { name, attributes, content })
    }

    fn attributes(&mut self, start: &BytesStart<'_>) -> Result<Vec<(Name, String)>, BadXml> {
        let mut found: Vec<(Name, String)> = Vec::new();
        for (n, attribute) in start.attributes().enumerate() {
            let attribute = attribute.map_err(bad)?;
            if n >= ATTRIBUTES_MAX {
                return Err(bad("an element has too many attributes"));
            }
            if attribute.key.as_namespace_binding().is_some() {
                continue;
            }
            let (space, local) = self.reader.resolver().resolve_attribute(attribute.key);
            let name = name(space, local.as_ref(), &mut self.names_left)?;
            let raw = std::str::from_utf8(&attribute.value).map_err(bad)?;
            let value = quick_xml::escape::unescape(raw).map_err(bad)?.into_owned();
            if !value.chars().all(is_allowed) {
                return Err(bad("it names a character that XML does not allow"));
            }
            found.push((name, value));
        }
        Ok(found)
    }

    fn content(&mut self, depth: usize) -> Result<Vec<Node>, BadXml> {
        let mut content = Vec::new();
        loop {
            match self.reader.read_event().map_err(bad)? {
                Event::Start(start) => content.push(Node::Element(self.element(&start, false, depth + 1)?)),
                Event::Empty(start) => content.push(Node::Element(self.element(&start, true, depth + 1)?)),
                Event::Text(text) => add(&mut content, &text.decode().map_err(bad)?),
                Event::CData(text) => add(&mut content, &text.decode().map_err(bad)?),
                Event::GeneralRef(entity) => add(&mut content, &resolved(&entity)?),
                Event::End(_) => return Ok(content),
                Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => return Err(bad("it ends too early")),
                Event::DocType(_) | Event::Decl(_) => return Err(bad("a declaration is out of place")),
            }
        }
    }
}

/// Adds text; consecutive texts become one, and none is empty.
fn add(content: &mut Vec<Node>, text: &str) {
    match content.last_mut() {
        _ if text.is_empty() => (),
        Some(Node::Text(before)) => before.push_str(text),
        _ => content.push(Node::Text(text.into())),
    }
}

/// `&amp;` and `&#38;`; there are no others without a document type.
fn resolved(entity: &BytesRef<'_>) -> Result<String, BadXml> {
    if let Some(character) = entity.resolve_char_ref().map_err(bad)? {
        return if is_allowed(character) {
            Ok(character.into())
        } else {
            Err(bad("it names a character that XML does not allow"))
        };
    }
    let name = entity.decode().map_err(bad)?;
    resolve_predefined_entity(&name)
        .map(str::to_string)
        .ok_or_else(|| bad(format!("there is no entity {name}")))
}

/// A name with its namespace; its length is taken from the bytes left for names.
fn name(space: ResolveResult<'_>, local: &[u8], left: &mut usize) -> Result<Name, BadXml> {
    let space: &[u8] = match &space {
        ResolveResult::Bound(space) => space.as_ref(),
        ResolveResult::Unbound => b"",
        ResolveResult::Unknown(_) => return Err(bad("a prefix stands for no namespace")),
    };
    if space.len() > SPACE_BYTES_MAX || local.len() > LOCAL_BYTES_MAX {
        return Err(bad("it has a name that is too long"));
    }
    let rest = left.checked_sub(space.len() + local.len());
    *left = rest.ok_or_else(|| bad("its names are too long with their namespaces"))?;
    let text = |bytes| std::str::from_utf8(bytes).map_err(bad);
    let (space, local) = (text(space)?, text(local)?.to_string());
    let space = quick_xml::escape::unescape(space).map_err(bad)?.into_owned();
    if !is_name(&local) {
        return Err(bad("it has a name that XML does not allow"));
    }
    Ok(Name { space, local })
}

/// Whether it may be written as the name of an element again. The reader accepts more than that.
fn is_name(local: &str) -> bool {
    let begins = |c: char| c.is_alphabetic() || c == '_';
    let goes_on = |c: char| begins(c) || c.is_numeric() || matches!(c, '-' | '.' | '\u{b7}') || c > '\u{2ff}';
    let mut characters = local.chars();
    characters.next().is_some_and(|c| begins(c) || c > '\u{2ff}') && characters.all(goes_on)
}

/// Characters that XML 1.0 allows in a document.
pub(super) fn is_allowed(c: char) -> bool {
    !matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_their_namespaces() {
        let xml = br#"<?xml version="1.0"?><a:x xmlns:a="DAV:" xmlns="u:"><y z="1 &lt; 2" a:z="3"/>t&amp;&#65;<![CDATA[<]]><!-- no --></a:x>"#;
        let root = Element::parse(xml).unwrap();
        assert!(root.name.is("x"));
        let y = root.elements().next().unwrap();
        assert_eq!((y.name.space.as_str(), y.name.local.as_str()), ("u:", "y"));
        assert_eq!(y.attributes[0].1, "1 < 2");
        assert_eq!(y.attributes[1].0, Name::dav("z"));
        assert_eq!(root.content[1], Node::Text("t&A<".into()));
    }

    #[test]
    fn what_is_written_is_the_same_again() {
        let xml = br#"<v xmlns="DAV:" xmlns:b="urn:b&amp;c" xml:lang="de"><b:c b:d="&quot;"><e xmlns=""><![CDATA[]]></e></b:c> a &lt; b</v>"#;
        let root = Element::parse(xml).unwrap();
        assert_eq!(Element::parse(root.outer().as_bytes()).unwrap(), root);
        assert!(root.outer().contains("xml:lang=\"de\""), "{}", root.outer());
    }

    #[test]
    fn bombs_and_traps_are_refused() {
        let laughs = "<!DOCTYPE x [<!ENTITY a \"aaaa\"><!ENTITY b \"&a;&a;\">]><x>&b;</x>";
        let outside = "<!DOCTYPE x [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><x>&a;</x>";
        let deep = format!("{}{}", "<a>".repeat(DEPTH_MAX + 1), "</a>".repeat(DEPTH_MAX + 1));
        let wide = format!("<a>{}</a>", "<b/>".repeat(ELEMENTS_MAX));
        let attributes: String = (0..=ATTRIBUTES_MAX).map(|n| format!(" a{n}=''")).collect();
        let many = format!("<a{attributes}/>");
        let space = format!("<x xmlns:a='{}'/>", "u".repeat(SPACE_BYTES_MAX + 1)).replace("<x", "<a:x");
        let local = format!("<{}/>", "x".repeat(LOCAL_BYTES_MAX + 1));
        // each of them is small, and all of them use one declaration
        let declared = format!("<a:x xmlns:a='{}'>", "u".repeat(SPACE_BYTES_MAX));
        let amplified = format!("{declared}{}</a:x>", "<a:b/>".repeat(NAMES_BYTES_MAX / SPACE_BYTES_MAX));
        let by_attributes =
            format!("{declared}{}</a:x>", "<b a:c=''/>".repeat(NAMES_BYTES_MAX / SPACE_BYTES_MAX));
        for xml in [
            laughs,
            outside,
            &deep,
            &wide,
            &many,
            &space,
            &local,
            &amplified,
            &by_attributes,
            "<x>&a;</x>",
            "<x>&#0;</x>",
            "<x>\u{1}</x>",
            "<a:x/>",
            "<x",
            "<x>",
            "</x>",
            "<x></y>",
            "<x/><y/>",
            "x",
            "",
            "<x a='1' a='2'/>",
            "<1/>",
            "<x/>y",
        ] {
            assert!(Element::parse(xml.as_bytes()).is_err(), "{}", &xml[..xml.len().min(60)]);
        }
        assert!(Element::parse(b"\xff\xfe<\0x\0/\0>\0").is_err());
    }
}
