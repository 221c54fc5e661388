//! What strangers may send, for fuzz targets: words that mean something to a parser, and now and
//! then a byte that means nothing. Shared by the crates of the doors.
#![allow(dead_code)] // not every target needs everything

use bolero::{ValueGenerator, produce};

/// Most words of one soup.
const WORDS_MAX: usize = 48;

/// Of these words, with `|` between them.
pub fn soup(words: &'static str) -> impl ValueGenerator<Output = Vec<u8>> {
    let words: Vec<&str> = words.split('|').collect();
    let pieces = produce::<Vec<(u8, u8)>>().with().len(0usize..WORDS_MAX);
    pieces.map_gen(move |pieces| {
        let mut out = Vec::new();
        for (kind, value) in pieces {
            match kind {
                0..16 => out.push(value),
                _ => out.extend_from_slice(words[usize::from(value) % words.len()].as_bytes()),
            }
        }
        out
    })
}

/// The same as text.
pub fn text(words: &'static str) -> impl ValueGenerator<Output = String> {
    soup(words).map_gen(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// One of these.
pub fn one(of: &'static str) -> impl ValueGenerator<Output = &'static str> {
    let of: Vec<&str> = of.split('|').collect();
    produce::<u8>().map_gen(move |n| of[usize::from(n) % of.len()])
}

/// What the escapes of a URL stand for: written for itself, so that nothing is compared with what
/// it came from. Escapes that are none stand as they are.
pub fn unescaped(text: &str) -> Vec<u8> {
    let digit = |at: usize| (text.as_bytes().get(at).copied()? as char).to_digit(16);
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some(byte) = text.as_bytes().get(at) {
        match (byte, digit(at + 1), digit(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 3;
            }
            _ => {
                out.push(*byte);
                at += 1;
            }
        }
    }
    out
}
