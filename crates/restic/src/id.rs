//! Names of files and blobs: SHA-256 of what they are.

use leeward_env::hex;
use ring::digest;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;

/// SHA-256 of a file or a blob.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(pub [u8; 32]);

impl Id {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Id {
        Id(digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes"))
    }

    /// Reads the output of `to_string`.
    pub fn parse(text: &str) -> Option<Id> {
        hex::decode(text)?.try_into().ok().map(Id)
    }

    /// The name of the pack with this id.
    pub(crate) fn pack_name(&self) -> String {
        let text = self.to_string();
        format!("data/{}/{text}", &text[..2])
    }

    /// As many digits as restic shows.
    pub fn short(&self) -> String {
        hex::encode(&self.0[..4])
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; 64];
        for (byte, two) in self.0.iter().zip(text.chunks_exact_mut(2)) {
            let digit = |n: u8| b"0123456789abcdef"[usize::from(n)];
            (two[0], two[1]) = (digit(byte >> 4), digit(byte & 15));
        }
        s.serialize_str(std::str::from_utf8(&text).expect("digits are UTF-8"))
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Id, D::Error> {
        struct Text;
        impl de::Visitor<'_> for Text {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("64 hexadecimal digits")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Id, E> {
                Id::parse(text).ok_or_else(|| E::invalid_value(de::Unexpected::Str(text), &self))
            }
        }
        d.deserialize_str(Text)
    }
}
