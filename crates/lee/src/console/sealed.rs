//! What a browser keeps for us and can neither read nor change: a login at a provider on its way.
//! So nothing is kept here of browsers that have not come back.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use leeward_auth::Gone;
use leeward_env::{Env, Nanos};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use serde::{Deserialize, Serialize};

/// How long somebody has to log in at a provider, nanoseconds.
const GOOD: Nanos = 600_000_000_000;

/// A login on its way.
#[derive(Debug, Serialize, Deserialize)]
pub struct OnItsWay {
    /// What the provider's answer is checked with.
    pub gone: Gone,
    /// The page to go on with.
    pub next: String,
    /// When it began, on the clock of this process.
    left: Nanos,
}

/// Seals and opens, with a key of this process.
pub struct Sealer {
    env: Env,
    key: LessSafeKey,
}

impl Sealer {
    /// A new key.
    ///
    /// # Panics
    /// Never: the key has the length that the algorithm wants.
    pub fn new(env: &Env) -> Sealer {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &env.secret::<32>()).expect("32 bytes");
        Sealer { env: env.clone(), key: LessSafeKey::new(key) }
    }

    /// A login that begins now. Empty: it cannot be sealed.
    pub fn seal(&self, gone: Gone, next: &str) -> String {
        let way = OnItsWay { gone, next: next.to_owned(), left: self.env.now() };
        let nonce = self.env.secret::<NONCE_LEN>();
        let mut bytes = serde_json::to_vec(&way).unwrap_or_default();
        let sealed =
            self.key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut bytes);
        sealed.map_or_else(|_| String::new(), |()| URL_SAFE_NO_PAD.encode([&nonce[..], &bytes].concat()))
    }

    /// The login that comes back with this state. `None`: it did not begin in this browser, or long
    /// ago.
    pub fn open(&self, sealed: &str, state: &str) -> Option<OnItsWay> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_LEN>()?;
        let mut rest = rest.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = self.key.open_in_place(nonce, Aad::empty(), &mut rest).ok()?;
        let way: OnItsWay = serde_json::from_slice(opened).ok()?;
        let is_in_time = self.env.now().saturating_sub(way.left) < GOOD;
        (is_in_time && super::sessions::is_same(way.gone.state(), state)).then_some(way)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn gone(state: &str) -> Gone {
        let gone = json!({"state": state, "nonce": "n", "proof": "p", "back": "b"});
        serde_json::from_value(gone).expect("a login")
    }

    #[test]
    fn only_what_was_sealed_here_is_opened_in_time_and_by_its_state() {
        let env = Env::sim(1);
        let (sealer, other) = (Sealer::new(&env), Sealer::new(&env));
        let sealed = sealer.seal(gone("s"), "/console/volumes");
        assert!(!sealed.contains("console"));
        assert_eq!(sealer.open(&sealed, "s").expect("the login").next, "/console/volumes");
        assert!(sealer.open(&sealed, "t").is_none() && other.open(&sealed, "s").is_none());
        for wrong in ["", "x", &sealed[1..], &sealed.replace(&sealed[20..22], "AA")] {
            assert!(sealer.open(wrong, "s").is_none(), "{wrong}");
        }
        env.sleep(std::time::Duration::from_nanos(GOOD));
        assert!(sealer.open(&sealed, "s").is_none());
    }
}
