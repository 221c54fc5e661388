//! What a gateway is told of users, keys and buckets, and of the settings of doors: JSON, so that
//! versions of `lee` that know more fields understand each other. It has secrets, so nothing here
//! can be printed.

use crate::fail::Fail;
use crate::settings::CellSettings;
use leeward_auth::IssuerConfig;
use leeward_env::hex;
use leeward_fs::accounts::{AccountChange, Accounts, KeyRecord, Numbers, Secret, SigningRecord, UserRecord};
use leeward_volume::format::buckets::{BucketRecord, Buckets};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// See the module's head.
#[derive(Serialize, Deserialize)]
pub struct Access {
    users: Vec<User>,
    keys: Vec<Key>,
    signing: Vec<Signing>,
    buckets: Vec<Bucket>,
    /// The settings of doors, which the server reads when it starts.
    pub settings: DoorSettings,
}

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    /// User id and groups; the server's user database has them otherwise.
    numbers: Option<(u32, Vec<u32>)>,
    disabled: bool,
    generation: u32,
    created_secs: i64,
}

#[derive(Serialize, Deserialize)]
struct Key {
    id: String,
    user: String,
    secret: String,
    label: String,
    created_secs: i64,
}

#[derive(Serialize, Deserialize)]
struct Signing {
    number: u32,
    secret_hex: String,
    created_secs: i64,
}

#[derive(Serialize, Deserialize)]
struct Bucket {
    name: String,
    path: String,
    created_secs: i64,
    public: bool,
    cors: String,
}

/// Those settings of a cell that hold for its doors wherever they are.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoorSettings {
    issuer: Vec<IssuerConfig>,
    tls_users: BTreeMap<String, String>,
    s3_domains: Vec<String>,
    s3_new_buckets: String,
    transfers_max: u32,
    transfers_networks: Vec<String>,
    transfers_ports: Vec<u16>,
    transfers_local: bool,
}

impl DoorSettings {
    /// Those of a cell.
    pub fn of(config: &CellSettings) -> DoorSettings {
        DoorSettings {
            issuer: config.issuer.clone(),
            tls_users: config.tls_users.clone(),
            s3_domains: config.s3_domains.clone(),
            s3_new_buckets: config.s3_new_buckets.clone(),
            transfers_max: config.transfers_max,
            transfers_networks: config.transfers_networks.clone(),
            transfers_ports: config.transfers_ports.clone(),
            transfers_local: config.transfers_local,
        }
    }

    /// As the settings of a cell; all others are the usual ones.
    pub fn to_config(&self) -> CellSettings {
        let of = self.clone();
        CellSettings {
            issuer: of.issuer,
            tls_users: of.tls_users,
            s3_domains: of.s3_domains,
            s3_new_buckets: of.s3_new_buckets,
            transfers_max: of.transfers_max,
            transfers_networks: of.transfers_networks,
            transfers_ports: of.transfers_ports,
            transfers_local: of.transfers_local,
            ..CellSettings::default()
        }
    }
}

impl Access {
    /// All of this.
    pub fn of(accounts: &Accounts, buckets: &Buckets, settings: &DoorSettings) -> Access {
        let user = |(name, of): (&str, &UserRecord)| User {
            name: name.into(),
            numbers: of.numbers.as_ref().map(|of| (of.uid, of.gids.clone())),
            disabled: of.disabled,
            generation: of.generation,
            created_secs: of.created_secs,
        };
        let key = |(id, of): (&str, &KeyRecord)| Key {
            id: id.into(),
            user: of.user.clone(),
            secret: of.secret.reveal().into(),
            label: of.label.clone(),
            created_secs: of.created_secs,
        };
        let signing = |number| {
            let of: &SigningRecord = accounts.signing_key(number)?;
            Some(Signing { number, secret_hex: hex::encode(&of.secret), created_secs: of.created_secs })
        };
        let bucket = |(name, of): (&String, &Arc<BucketRecord>)| Bucket {
            name: name.clone(),
            path: of.path.clone(),
            created_secs: of.created_secs,
            public: of.public,
            cors: of.cors.clone(),
        };
        Access {
            users: accounts.users().map(user).collect(),
            keys: accounts.keys().map(key).collect(),
            signing: accounts.signing_keys().filter_map(signing).collect(),
            buckets: buckets.iter().map(bucket).collect(),
            settings: settings.clone(),
        }
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// As it was sent.
    ///
    /// # Errors
    /// It is not understood. The text has nothing of it.
    pub fn parse(bytes: &[u8]) -> Result<Access, Fail> {
        serde_json::from_slice(bytes).map_err(|e| {
            let at = e.column();
            Fail::new(format!(
                "what the server tells of users is not understood (byte {at}): install the same version of lee on \
                 both machines"
            ))
        })
    }

    /// The users, their keys, and the keys that sign tokens.
    ///
    /// # Errors
    /// A key is damaged.
    pub fn accounts(&self) -> Result<Accounts, Fail> {
        let mut accounts = Accounts::default();
        for of in &self.users {
            let numbers = of.numbers.clone().map(|(uid, gids)| Numbers { uid, gids });
            let (disabled, generation, created_secs) = (of.disabled, of.generation, of.created_secs);
            let record = UserRecord { numbers, disabled, generation, created_secs };
            accounts.apply(AccountChange::User(of.name.clone(), record));
        }
        for of in &self.keys {
            let (user, secret, label) = (of.user.clone(), Secret::new(of.secret.as_str()), of.label.clone());
            let record = KeyRecord { user, secret, label, host: None, created_secs: of.created_secs };
            accounts.apply(AccountChange::Key(of.id.clone(), Some(record)));
        }
        for of in &self.signing {
            let secret = hex::decode(&of.secret_hex).and_then(|secret| secret.try_into().ok());
            let secret = secret.ok_or_else(|| Fail::new("a key of the server's is damaged"))?;
            let record = SigningRecord { secret, created_secs: of.created_secs };
            accounts.apply(AccountChange::Signing(of.number, Some(record)));
        }
        Ok(accounts)
    }

    /// The buckets.
    pub fn buckets(self) -> Buckets {
        let of = |bucket: Bucket| {
            let Bucket { name, path, created_secs, public, cors } = bucket;
            (name, Arc::new(BucketRecord { path, created_secs, public, cors }))
        };
        self.buckets.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_arrives() {
        let mut accounts = Accounts::default();
        let numbers = Some(Numbers { uid: 7, gids: vec![8, 9] });
        let user = UserRecord { numbers, disabled: false, generation: 3, created_secs: 4 };
        let of_machine = UserRecord { numbers: None, disabled: true, ..user.clone() };
        let key = KeyRecord {
            user: "a".into(),
            secret: Secret::new("s"),
            label: "l".into(),
            host: None,
            created_secs: 5,
        };
        let signing = SigningRecord { secret: [0xab; 32], created_secs: 6 };
        accounts.apply(AccountChange::User("a".into(), user));
        accounts.apply(AccountChange::User("b".into(), of_machine));
        accounts.apply(AccountChange::Key("K".into(), Some(key)));
        accounts.apply(AccountChange::Signing(2, Some(signing)));
        let bucket = BucketRecord { path: "/p".into(), created_secs: 1, public: true, cors: "[]".into() };
        let buckets = Buckets::from([("b1".into(), Arc::new(bucket))]);
        let config = CellSettings {
            s3_domains: vec!["s3.example.org".into()],
            s3_new_buckets: "/new".into(),
            transfers_max: 3,
            tls_users: [("CN=A".to_string(), "a".to_string())].into(),
            ..CellSettings::default()
        };
        let told = Access::of(&accounts, &buckets, &DoorSettings::of(&config)).to_bytes();
        let access = Access::parse(&told).expect("understood");
        assert_eq!(access.accounts().expect("whole"), accounts);
        assert!(access.settings.to_config() == config);
        assert_eq!(access.buckets(), buckets);
        let wrong = Access::parse(&told[..told.len() - 1]).err().expect("cut off").to_string();
        assert!(!wrong.contains("abab"), "{wrong}");
    }
}
