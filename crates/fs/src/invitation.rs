//! The token by which a machine enrols as a host of a cell, once: made by `lee host add`, shown to
//! the cell by `lee mount`.
//!
//! It has the secret of the invitation, and the public key of the cell: so the machine knows from
//! the first connection that it talks to that cell, and shows the secret to nobody else.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use std::fmt;

/// Start of the text, so that somebody who finds one knows what it is.
const PREFIX: &str = "leeward-host-";
const VERSION: u8 = 1;
const SECRET_BYTES: usize = 16;
const KEY_BYTES: usize = 32;
const BYTES: usize = 1 + SECRET_BYTES + KEY_BYTES;

/// What a token says.
#[derive(Clone, PartialEq, Eq)]
pub struct InvitationToken {
    /// The secret of the invitation.
    pub secret: [u8; SECRET_BYTES],
    /// The Ed25519 public key of the cell.
    pub cell_key: [u8; KEY_BYTES],
}

impl fmt::Debug for InvitationToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InvitationToken").field("cell_key", &self.cell_key).finish_non_exhaustive()
    }
}

/// Why a text is no token that we can use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// It begins in another way.
    #[error("it does not begin with {PREFIX}")]
    Prefix,
    /// Something that is not base64 follows, or bits that say nothing.
    #[error("what follows {PREFIX} is no base64: copy the whole token, and nothing else")]
    Encoding,
    /// It has another length.
    #[error("it has {0} bytes after {PREFIX} and not {BYTES}: copy the whole token")]
    Length(usize),
    /// It is a token of another program.
    #[error("it has version {0}, this lee knows {VERSION}: use the lee of the server")]
    Version(u8),
}

impl InvitationToken {
    /// The token as text: letters, digits, `-` and `_`.
    pub fn to_text(&self) -> String {
        let bytes = [&[VERSION], &self.secret[..], &self.cell_key].concat();
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a token. Blanks around it do not count.
    ///
    /// # Errors
    /// What is wrong with the text. No error repeats the text, which may be a secret.
    pub fn parse(text: &str) -> Result<InvitationToken, TokenError> {
        let encoded = text.trim().strip_prefix(PREFIX).ok_or(TokenError::Prefix)?;
        let bytes = URL_SAFE_NO_PAD.decode(encoded).map_err(|_| TokenError::Encoding)?;
        let (version, rest) = bytes.split_first().ok_or(TokenError::Length(0))?;
        if *version != VERSION {
            return Err(TokenError::Version(*version));
        }
        let parts = rest.split_first_chunk().and_then(|(secret, key)| Some((*secret, key.try_into().ok()?)));
        let (secret, cell_key) = parts.ok_or(TokenError::Length(bytes.len()))?;
        Ok(InvitationToken { secret, cell_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "leeward-host-AasAAAAAAAAAAAAAAAAAAKvNzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3Nzc3NzQ";

    fn token() -> InvitationToken {
        let mut secret = [0; 16];
        (secret[0], secret[15]) = (0xab, 0xab);
        InvitationToken { secret, cell_key: [0xcd; 32] }
    }

    #[test]
    fn tokens_are_as_they_were() {
        assert_eq!(token().to_text(), TEXT);
        assert_eq!(InvitationToken::parse(TEXT), Ok(token()));
        assert_eq!(InvitationToken::parse(&format!(" {TEXT}\n")), Ok(token()));
        let shown = format!("{:?}", token());
        assert!(!shown.contains("171"), "{shown}");
    }

    #[test]
    fn what_is_no_token_is_refused_and_said() {
        let encoded = |bytes: &[u8]| format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let longer = [&[1][..], &[0; 49]].concat();
        for (text, error) in [
            (String::new(), TokenError::Prefix),
            ("leeward".into(), TokenError::Prefix),
            (TEXT.to_uppercase(), TokenError::Prefix),
            (PREFIX.into(), TokenError::Length(0)),
            (format!("{TEXT}="), TokenError::Encoding),
            (TEXT.replace("AasA", "A*sA"), TokenError::Encoding),
            (format!("{}R", &TEXT[..TEXT.len() - 1]), TokenError::Encoding),
            (TEXT[..TEXT.len() - 2].into(), TokenError::Length(48)),
            (encoded(&longer), TokenError::Length(50)),
            (encoded(&[2; 49]), TokenError::Version(2)),
            (encoded(&[2; 20]), TokenError::Version(2)),
        ] {
            assert_eq!(InvitationToken::parse(&text), Err(error), "{text}");
        }
        assert!(TokenError::Version(2).to_string().contains("version 2, this lee knows 1"));
    }
}
