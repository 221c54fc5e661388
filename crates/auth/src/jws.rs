//! Signed tokens as bytes: the three parts of a JWT, public keys as issuers publish them, RS256 and
//! ES256.
//!
//! Relies on `ring` for signatures. The key determines the algorithm, never the token: so there is
//! no `none`, and no public key is ever taken for the secret of a hash.

use crate::refusal::Refusal;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, RSA_PKCS1_2048_8192_SHA256, RsaPublicKeyComponents, UnparsedPublicKey,
};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Bytes of a coordinate on P-256.
const COORDINATE: usize = 32;

/// Algorithms that may sign a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Algorithm {
    /// RSASSA-PKCS1-v1_5 with SHA-256, 2048 to 8192 bits.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
    /// Extensions that must be understood: none is.
    #[serde(default)]
    crit: Option<serde_json::Value>,
}

/// A token that is not verified yet.
pub(crate) struct Signed<'a> {
    /// The algorithm that it names.
    pub(crate) algorithm: Algorithm,
    /// The key that it names.
    pub(crate) key_id: Option<String>,
    message: &'a str,
    claims: Vec<u8>,
    signature: Vec<u8>,
}

impl<'a> Signed<'a> {
    /// Splits a token into its parts.
    ///
    /// # Errors
    /// [`Refusal::Malformed`]; [`Refusal::Invalid`] for another algorithm, or an extension.
    pub(crate) fn parse(token: &'a str) -> Result<Signed<'a>, Refusal> {
        let malformed = || Refusal::Malformed("a token has three parts in base64".into());
        let (message, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
        let (header, claims) = message.split_once('.').ok_or_else(malformed)?;
        let bytes = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| malformed());
        let (header, claims, signature) = (bytes(header)?, bytes(claims)?, bytes(signature)?);
        let header: Header = object(&header).map_err(|e| Refusal::Malformed(format!("its header: {e}")))?;
        let algorithm = match header.alg.as_str() {
            "RS256" => Algorithm::Rs256,
            "ES256" => Algorithm::Es256,
            _ => return Err(Refusal::Invalid("it is signed neither with RS256 nor with ES256".into())),
        };
        if header.crit.is_some() {
            return Err(Refusal::Invalid("it has an extension that is not known here".into()));
        }
        Ok(Signed { algorithm, key_id: header.kid, message, claims, signature })
    }

    /// The claims of the token; worth nothing until [`Signed::is_signed_by`] the right key.
    ///
    /// # Errors
    /// [`Refusal::Malformed`].
    pub(crate) fn claims<T: DeserializeOwned>(&self) -> Result<T, Refusal> {
        object(&self.claims).map_err(|e| Refusal::Malformed(format!("its claims: {e}")))
    }

    /// Whether this key's owner signed it.
    pub(crate) fn is_signed_by(&self, key: &PublicKey) -> bool {
        let (message, signature) = (self.message.as_bytes(), &self.signature);
        match key {
            _ if key.algorithm() != self.algorithm => false,
            PublicKey::Rsa { n, e } => RsaPublicKeyComponents { n, e }
                .verify(&RSA_PKCS1_2048_8192_SHA256, message, signature)
                .is_ok(),
            PublicKey::P256(point) => {
                UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, point).verify(message, signature).is_ok()
            }
        }
    }
}

/// Reads a JSON object. The library would also accept a list of values for a structure.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn object<T: DeserializeOwned>(json: &[u8]) -> Result<T, String> {
    match json.trim_ascii_start().first() {
        Some(b'{') => serde_json::from_slice(json).map_err(|e| e.to_string()),
        _ => Err("no JSON object".into()),
    }
}

/// A key as issuers publish it (RFC 7517).
#[derive(Deserialize)]
pub(crate) struct Jwk {
    #[serde(default)]
    pub(crate) kid: Option<String>,
    kty: String,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default, rename = "use")]
    used_for: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: String,
    #[serde(default)]
    e: String,
    #[serde(default)]
    x: String,
    #[serde(default)]
    y: String,
}

/// A public key for one of our algorithms.
pub(crate) enum PublicKey {
    /// Modulus and exponent, big-endian without zeros before them.
    Rsa { n: Vec<u8>, e: Vec<u8> },
    /// An uncompressed point.
    P256(Vec<u8>),
}

impl PublicKey {
    /// The key; `None` for one of another kind, for another use, or not readable.
    pub(crate) fn from_jwk(jwk: &Jwk) -> Option<PublicKey> {
        let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).ok();
        if jwk.used_for.as_deref().is_some_and(|used| used != "sig") {
            return None;
        }
        let (key, name) = match (jwk.kty.as_str(), jwk.crv.as_deref()) {
            ("RSA", _) => {
                let number = |text: &str| {
                    let bytes = bytes(text)?;
                    let zeros = bytes.iter().take_while(|b| **b == 0).count();
                    (zeros < bytes.len()).then(|| bytes[zeros..].to_vec())
                };
                (PublicKey::Rsa { n: number(&jwk.n)?, e: number(&jwk.e)? }, "RS256")
            }
            ("EC", Some("P-256")) => {
                let (x, y) = (bytes(&jwk.x)?, bytes(&jwk.y)?);
                let fits = x.len() == COORDINATE && y.len() == COORDINATE;
                (fits.then(|| PublicKey::P256([&[4], &x[..], &y[..]].concat()))?, "ES256")
            }
            _ => return None,
        };
        jwk.alg.as_deref().is_none_or(|alg| alg == name).then_some(key)
    }

    pub(crate) fn algorithm(&self) -> Algorithm {
        match self {
            PublicKey::Rsa { .. } => Algorithm::Rs256,
            PublicKey::P256(_) => Algorithm::Es256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    // made by PyJWT
    const N: &str = "wHoHmABDgV1X6QbnsRZjUAr-j990LoZN8H63m8HEXmqqWvVxrl04gccBhflSqyc_pwCENBS9EgcUCJGrSleA96330r0tmELEH_Q9yfPcSAZbPvHorlKZx2I4W2TyuEpuesrSgXKutdCOf263jqhG3COVGipZLZDeKHmbAZVJ-FY1LYKt_3B69rvM0Q-M2h11NTMlQc7A9h4Z7pWXl7n3prq4mK7GDsejXa_SDqVMOLleCzMp34pcRZJQa1nyFEPt6dVimR0DBTwDDvzqs4IKIZgDL7XCo2iFBz2H18RAq5tUQVRc-BILxIL1ODnYqLBiuVqKOtDUFDeRxrWLPHWfwQ";
    const X: &str = "AhA_4J5I7gn4GcIjLVYWxunNPEjadSVMr_x7h26apjU";
    const Y: &str = "HEoUBXy-yay7H9RLX2794EG3DkYkeq8oVBrO3KUZDm0";
    const RS256: &str = "eyJhbGciOiJSUzI1NiIsImtpZCI6IjEiLCJ0eXAiOiJKV1QifQ.eyJpc3MiOiJ4In0.bFPea-_2-5en24W8Kq_1XawIJOljr16c6TGM7lIauMmf5_K4jPFoa2uBlFa0cE88TPnEnr6BW67MBdR4xFtUjYhJws3Vn3-93cllZT1Uy0AJOLU_RUdw-Umr55bFzUsIXK0DXgOPGfywN3THO4UuqcHSfNH8b8mrw3RrOSbFhvmuAlEGjU-zzG6UdCXLGeywgp93jkyWbPU7tPpsUojaWIRyMNdTFGGy5u0CcNljeZDM2ecMhb56X5EWzC26TLCOJE4v_-u9FCfzU_60q1BEIIIXmeJVcgfQvpeSEd_EQgaPZSEOOWqGEnj-1Uvqk8sWxniVT6TBtVAhgO-pRz4W8g";
    const ES256: &str = "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJ4In0.g8_C7QOgqxvKf8Dbu9YHEgtWEXMx4dzwZ8gFXq1KY6IYC61gJfrQfHlX58pE0i3fvqhnolGx0AssLKfBn63rRg";

    fn key(jwk: Value) -> Option<PublicKey> {
        PublicKey::from_jwk(&serde_json::from_value(jwk).expect("a JWK"))
    }

    fn rsa() -> Value {
        json!({"kty": "RSA", "n": N, "e": "AQAB"})
    }

    fn ec() -> Value {
        json!({"kty": "EC", "crv": "P-256", "x": X, "y": Y})
    }

    #[test]
    fn signatures_are_those_of_other_libraries() {
        let (rsa, ec) = (key(rsa()).expect("a key"), key(ec()).expect("a key"));
        for (token, right, wrong, key_id) in [(RS256, &rsa, &ec, Some("1")), (ES256, &ec, &rsa, None)] {
            let signed = Signed::parse(token).expect("a token");
            assert!(signed.is_signed_by(right) && !signed.is_signed_by(wrong));
            assert_eq!((signed.key_id.as_deref(), signed.claims()), (key_id, Ok(json!({"iss": "x"}))));
            let claims = URL_SAFE_NO_PAD.encode(r#"{"iss":"y"}"#);
            let parts: Vec<&str> = token.split('.').collect();
            let other = format!("{}.{claims}.{}", parts[0], parts[2]);
            assert!(!Signed::parse(&other).expect("a token").is_signed_by(right));
        }
    }

    #[test]
    fn keys_of_other_kinds_are_none() {
        let with = |mut jwk: Value, name: &str, value: &str| {
            jwk[name] = value.into();
            key(jwk)
        };
        assert!(with(rsa(), "use", "sig").is_some() && with(rsa(), "alg", "RS256").is_some());
        for jwk in [
            with(rsa(), "use", "enc"),
            with(rsa(), "alg", "RS512"),
            with(rsa(), "alg", "HS256"),
            with(rsa(), "n", ""),
            with(rsa(), "n", "AAAA"),
            with(rsa(), "n", "?"),
            with(rsa(), "kty", "oct"),
            with(ec(), "crv", "P-384"),
            with(ec(), "alg", "RS256"),
            with(ec(), "x", "AAAA"),
        ] {
            assert!(jwk.is_none());
        }
    }

    #[test]
    fn short_keys_sign_nothing() {
        let short = URL_SAFE_NO_PAD.encode([0xff; 128]);
        let key = key(json!({"kty": "RSA", "n": short, "e": "AQAB"})).expect("a number");
        assert!(!Signed::parse(RS256).expect("a token").is_signed_by(&key));
    }
}
