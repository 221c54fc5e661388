//! Encryption as restic has it: AES-256 in counter mode, and Poly1305-AES over the ciphertext. What
//! is sealed is a random start value, the ciphertext, and the authenticator.

use crate::{Error, Result};
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit, KeyIvInit, StreamCipher};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use leeward_env::Env;
use poly1305::Poly1305;
use serde::{Deserialize, Serialize};

type Cipher = ctr::Ctr128BE<aes::Aes256>;

const IV_BYTES: usize = 16;
const MAC_BYTES: usize = 16;
/// How much longer something is when it is sealed.
pub const OVERHEAD_BYTES: usize = IV_BYTES + MAC_BYTES;
/// Cost of the derivation of a key from a password, for whoever tries passwords too: 32 MiB of
/// memory, and a quarter of a second or less. The binary logarithm of scrypt's N.
pub const USUAL_COST: u8 = 15;
const SCRYPT_R: u32 = 8;
const SCRYPT_P: u32 = 4;
/// A key file that asks for more memory than 2 GiB is not believed.
const SCRYPT_MEMORY_MAX: u64 = 2 << 30;

/// The keys of a repository, or of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    encrypt: [u8; 32],
    mac_k: [u8; 16],
    mac_r: [u8; 16],
}

/// The keys as restic stores them.
#[derive(Serialize, Deserialize)]
struct KeyText {
    mac: MacText,
    encrypt: String,
}

#[derive(Serialize, Deserialize)]
struct MacText {
    k: String,
    r: String,
}

impl Key {
    /// New ones.
    pub fn random(env: &Env) -> Key {
        Key { encrypt: env.secret(), mac_k: env.secret(), mac_r: env.secret() }
    }

    fn from_bytes(bytes: &[u8; 64]) -> Key {
        let (mut encrypt, mut mac_k, mut mac_r) = ([0; 32], [0; 16], [0; 16]);
        encrypt.copy_from_slice(&bytes[..32]);
        mac_k.copy_from_slice(&bytes[32..48]);
        mac_r.copy_from_slice(&bytes[48..]);
        Key { encrypt, mac_k, mac_r }
    }

    /// The text that is stored of it, sealed by a password's key.
    fn to_text(&self) -> Vec<u8> {
        let mac = MacText { k: BASE64.encode(self.mac_k), r: BASE64.encode(self.mac_r) };
        let text = KeyText { mac, encrypt: BASE64.encode(self.encrypt) };
        serde_json::to_vec(&text).expect("strings make JSON")
    }

    fn from_text(text: &[u8]) -> Option<Key> {
        let text: KeyText = serde_json::from_slice(text).ok()?;
        let part = |text: &str| BASE64.decode(text).ok();
        Some(Key {
            encrypt: part(&text.encrypt)?.try_into().ok()?,
            mac_k: part(&text.mac.k)?.try_into().ok()?,
            mac_r: part(&text.mac.r)?.try_into().ok()?,
        })
    }

    fn authenticate(&self, iv: &[u8; IV_BYTES], ciphertext: &[u8]) -> [u8; MAC_BYTES] {
        let mut nonce = Array::from(*iv);
        aes::Aes128::new(&Array::from(self.mac_k)).encrypt_block(&mut nonce);
        let mut key = [0; 32];
        key[..16].copy_from_slice(&self.mac_r);
        key[16..].copy_from_slice(&nonce);
        Poly1305::new(&Array::from(key)).compute_unpadded(ciphertext).into()
    }

    /// Seals bytes.
    pub fn seal(&self, env: &Env, plain: &[u8]) -> Vec<u8> {
        let iv: [u8; IV_BYTES] = env.secret();
        let mut out = Vec::with_capacity(plain.len() + OVERHEAD_BYTES);
        out.extend_from_slice(&iv);
        out.extend_from_slice(plain);
        Cipher::new(&Array::from(self.encrypt), &Array::from(iv)).apply_keystream(&mut out[IV_BYTES..]);
        let mac = self.authenticate(&iv, &out[IV_BYTES..]);
        out.extend_from_slice(&mac);
        out
    }

    /// Opens what was sealed; `None`: it was not, or not by this key.
    pub fn open(&self, mut sealed: Vec<u8>) -> Option<Vec<u8>> {
        let end = sealed.len().checked_sub(MAC_BYTES).filter(|end| *end >= IV_BYTES)?;
        let iv: [u8; IV_BYTES] = sealed[..IV_BYTES].try_into().ok()?;
        let mac = self.authenticate(&iv, &sealed[IV_BYTES..end]);
        let differs = mac.iter().zip(&sealed[end..]).fold(0, |all, (a, b)| all | (a ^ b));
        if differs != 0 {
            return None;
        }
        sealed.truncate(end);
        sealed.drain(..IV_BYTES);
        Cipher::new(&Array::from(self.encrypt), &Array::from(iv)).apply_keystream(&mut sealed);
        Some(sealed)
    }
}

/// A file below `keys`: the keys of the repository, sealed by a password.
#[derive(Serialize, Deserialize)]
pub struct KeyFile {
    created: String,
    username: String,
    hostname: String,
    kdf: String,
    #[serde(rename = "N")]
    n: u64,
    r: u32,
    p: u32,
    salt: String,
    data: String,
}

impl KeyFile {
    /// Seals keys by a password.
    ///
    /// # Errors
    /// When there is no memory for that.
    pub fn seal(
        env: &Env,
        key: &Key,
        (password, cost): (&str, u8),
        (created, hostname): (String, String),
    ) -> Result<KeyFile> {
        let salt: [u8; 64] = env.secret();
        let by = derive(password, &salt, (cost, SCRYPT_R, SCRYPT_P))?;
        Ok(KeyFile {
            created,
            username: "leeward".into(),
            hostname,
            kdf: "scrypt".into(),
            n: 1 << cost,
            r: SCRYPT_R,
            p: SCRYPT_P,
            salt: BASE64.encode(salt),
            data: BASE64.encode(by.seal(env, &key.to_text())),
        })
    }

    /// Opens the keys; `None`: not by this password.
    ///
    /// # Errors
    /// Damaged.
    pub fn open(&self, password: &str) -> Result<Option<Key>> {
        let wrong = || Error::damaged("a key file of the repository makes no sense");
        let n_log2 = self.n.is_power_of_two().then(|| self.n.trailing_zeros() as u8);
        let memory = self.n.saturating_mul(u64::from(self.r)).saturating_mul(128);
        let n_log2 =
            n_log2.filter(|_| self.kdf == "scrypt" && memory <= SCRYPT_MEMORY_MAX).ok_or_else(wrong)?;
        let part = |text: &str| BASE64.decode(text).map_err(|_| wrong());
        let by = derive(password, &part(&self.salt)?, (n_log2, self.r, self.p))?;
        match by.open(part(&self.data)?) {
            Some(text) => Key::from_text(&text).map(Some).ok_or_else(wrong),
            None => Ok(None),
        }
    }
}

fn derive(password: &str, salt: &[u8], (n_log2, r, p): (u8, u32, u32)) -> Result<Key> {
    let wrong = || Error::damaged("a key file of the repository asks for a derivation that cannot be");
    let params = scrypt::Params::new(n_log2, r, p).map_err(|_| wrong())?;
    let mut out = [0; 64];
    scrypt::scrypt(password.as_bytes(), salt, &params, &mut out).map_err(|_| wrong())?;
    Ok(Key::from_bytes(&out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_can_be_opened_by_the_same_key_only() {
        let env = Env::real();
        let key = Key::random(&env);
        for len in [0, 1, 15, 16, 17, 100_000] {
            let plain: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let sealed = key.seal(&env, &plain);
            assert_eq!(sealed.len(), plain.len() + OVERHEAD_BYTES);
            assert_eq!(key.open(sealed.clone()).as_deref(), Some(&plain[..]));
            assert!(Key::random(&env).open(sealed.clone()).is_none());
            for at in [0, 16.min(sealed.len() - 1), sealed.len() - 1] {
                let mut other = sealed.clone();
                other[at] ^= 1;
                assert!(key.open(other).is_none(), "byte {at} of {len}");
            }
            assert!(key.open(sealed[..sealed.len() - 1].to_vec()).is_none());
        }
        assert!(key.open(Vec::new()).is_none());
    }

    #[test]
    fn the_authenticator_is_that_of_the_paper() {
        // D. J. Bernstein, "The Poly1305-AES message-authentication code", appendix B
        let part = |text| leeward_env::hex::decode(text).and_then(|b| b.try_into().ok()).expect("16 bytes");
        let key = Key {
            encrypt: [0; 32],
            mac_k: part("ec074c835580741701425b623235add6"),
            mac_r: part("851fc40c3467ac0be05cc20404f3f700"),
        };
        let mac = key.authenticate(&part("fb447350c4e868c52ac3275cf9d4327e"), &[0xf3, 0xf6]);
        assert_eq!(leeward_env::hex::encode(&mac), "f4c633c3044fc145f84f335cb81953de");
    }

    #[test]
    fn a_password_opens_its_key_file() {
        let env = Env::real();
        let key = Key::random(&env);
        let file = KeyFile::seal(&env, &key, ("right", 4), ("2026-11-26T00:00:00Z".into(), "here".into()));
        let file = file.expect("sealed");
        assert!(file.open("right") == Ok(Some(key)));
        assert!(file.open("wrong") == Ok(None));
        let huge = KeyFile { n: 1 << 40, ..file };
        assert!(huge.open("right").is_err());
    }
}
