//! The storage resource report of the WLCG (SRR, schema 4.2): what storage there is, for whom, and
//! how much of it is used.
//!
//! Made of what the cell knows at once: volumes, quotas, recursive statistics. Nothing is scanned.
//! Sizes are bytes.

use crate::fail::Fail;
use crate::mounts::is_below;
use crate::session::Session;
use crate::settings::{QualityLevel, SrrConfig, SrrShare};
use leeward_fs::Usage;
use leeward_volume::Cell;
use leeward_volume::admin::{self, Df, QuotaInfo, Request, VolumeInfo};
use serde::Serialize;

/// The report.
#[derive(Debug, Serialize)]
pub struct Report {
    storageservice: Service,
}

#[derive(Debug, Serialize)]
struct Service {
    name: String,
    servicetype: &'static str,
    implementation: &'static str,
    implementationversion: &'static str,
    qualitylevel: QualityLevel,
    latestupdate: i64,
    storagecapacity: Capacity,
    storageendpoints: Vec<Endpoint>,
    storageshares: Vec<Share>,
}

#[derive(Debug, Serialize)]
struct Capacity {
    online: Space,
}

#[derive(Debug, Serialize)]
struct Space {
    totalsize: u64,
    usedsize: u64,
}

#[derive(Debug, Serialize)]
struct Endpoint {
    name: String,
    endpointurl: String,
    interfacetype: String,
    assignedshares: [&'static str; 1],
}

#[derive(Debug, Serialize)]
struct Share {
    name: String,
    path: [String; 1],
    timestamp: i64,
    totalsize: u64,
    usedsize: u64,
    numberoffiles: u64,
    accesslatency: &'static str,
    retentionpolicy: &'static str,
    vos: Vec<String>,
    assignedendpoints: [&'static str; 1],
}

/// The cell's answers that all shares need.
struct Known {
    volumes: Vec<VolumeInfo>,
    quotas: Vec<QuotaInfo>,
    df: Df,
}

/// The shares to report: those of the settings, else the volumes. `paths`: only what is in these.
fn shares_of(config: &SrrConfig, known: &Known, paths: Option<&[String]>) -> Vec<SrrShare> {
    let of_volume = |volume: &VolumeInfo| {
        let (name, path) = (volume.name.clone(), volume.at.clone());
        SrrShare { vos: vec![name.clone()], name, path }
    };
    let mut shares = config.share.clone();
    if shares.is_empty() {
        shares.extend(known.volumes.iter().map(of_volume));
    }
    if let Some(paths) = paths {
        shares.retain(|share| paths.iter().any(|path| is_below(&share.path, path)));
        let inside = paths.iter().filter(|path| !shares.iter().any(|share| is_below(&share.path, path)));
        let inside = inside.map(|path| SrrShare { name: path.clone(), path: path.clone(), vos: Vec::new() });
        let inside: Vec<SrrShare> = inside.collect();
        shares.extend(inside);
    }
    shares
}

/// A way to ask a cell.
pub trait Ask {
    /// Asks.
    ///
    /// # Errors
    /// What the cell says, or that it cannot be reached.
    fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fail>;
}

impl Ask for Session {
    fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fail> {
        Session::ask(self, request)
    }
}

impl Ask for &Cell {
    fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fail> {
        Ok(self.admin(request, &mut |_| ())?)
    }
}

/// Makes the report of a cell. `paths`: only these, without what is above and beside them.
///
/// # Errors
/// The cell's, such as a share's path that does not exist.
pub fn report(
    config: &SrrConfig,
    host: String,
    now_secs: i64,
    paths: Option<&[String]>,
    cell: &mut impl Ask,
) -> Result<Report, Fail> {
    let volumes = cell.ask(&admin::VolumeList)?.volumes;
    let known = Known {
        volumes: volumes.into_iter().filter(|v| !v.removing).collect(),
        quotas: cell.ask(&admin::QuotaList)?.quotas,
        df: cell.ask(&admin::DfShow)?,
    };
    let mut storageshares = Vec::new();
    let shares = shares_of(config, &known, paths);
    for share in shares {
        let volume = known.volumes.iter().find(|v| config.share.is_empty() && v.at == share.path);
        let usage = match volume {
            Some(volume) => volume.usage,
            None => match cell.ask(&admin::UsageShow { path: share.path.clone() }) {
                Ok(own) => known.with_volumes_below(&share.path, own),
                // what a token is for need not be there
                Err(_) if paths.is_some() => continue,
                Err(fail) => return Err(fail),
            },
        };
        storageshares.push(known.share(share, usage, now_secs));
    }
    let online = match paths {
        None => known.capacity(),
        Some(_) => Space {
            totalsize: storageshares.iter().map(|share| share.totalsize).sum(),
            usedsize: storageshares.iter().map(|share| share.usedsize).sum(),
        },
    };
    let endpoint = |e: &crate::settings::SrrEndpoint| Endpoint {
        name: e.name.clone(),
        endpointurl: e.url.clone(),
        interfacetype: e.interface.clone(),
        assignedshares: ["all"],
    };
    let storageservice = Service {
        name: config.name.clone().unwrap_or(host),
        servicetype: "org.wlcg.se",
        implementation: "Leeward",
        implementationversion: env!("CARGO_PKG_VERSION"),
        qualitylevel: config.quality_level,
        latestupdate: now_secs,
        storagecapacity: Capacity { online },
        storageendpoints: config.endpoint.iter().map(endpoint).collect(),
        storageshares,
    };
    Ok(Report { storageservice })
}

fn same(a: &str, b: &str) -> bool {
    is_below(a, b) && is_below(b, a)
}

impl Known {
    /// Adds volumes attached below: statistics end at the root of another volume.
    fn with_volumes_below(&self, path: &str, own: Usage) -> Usage {
        let below = self.volumes.iter().filter(|v| is_below(&v.at, path) && !same(path, &v.at));
        below.fold(own, |sum, v| Usage {
            bytes: sum.bytes + v.usage.bytes,
            files: sum.files + v.usage.files,
            dirs: sum.dirs + v.usage.dirs,
        })
    }

    fn share(&self, share: SrrShare, usage: Usage, now: i64) -> Share {
        Share {
            timestamp: now,
            totalsize: self.size(&share.path, usage.bytes),
            usedsize: usage.bytes,
            numberoffiles: usage.files,
            accesslatency: "online",
            retentionpolicy: "replica",
            name: share.name,
            path: [share.path],
            vos: share.vos,
            assignedendpoints: ["all"],
        }
    }

    /// How large a directory can get: its quota; without one what it has and what there is room
    /// for, by the quotas above it and the pool of its volume.
    fn size(&self, path: &str, used: u64) -> u64 {
        let limits = self.quotas.iter().filter(|q| q.bytes > 0 && is_below(path, &q.path));
        if let Some(own) = limits.clone().find(|q| same(&q.path, path)) {
            return own.bytes;
        }
        let volume = self.volumes.iter().filter(|v| is_below(path, &v.at)).max_by_key(|v| v.at.len());
        let pool = self.df.pools.iter().find(|pool| volume.is_some_and(|v| v.pool == pool.name));
        let free = pool.map_or(self.df.available_bytes, |pool| pool.available_bytes);
        // a quota counts in its own volume
        let counts = |q: &&QuotaInfo| volume.is_none_or(|v| is_below(&q.path, &v.at));
        let left = limits.filter(counts).map(|q| q.bytes.saturating_sub(q.used_bytes));
        used + left.fold(free, u64::min)
    }

    /// Capacity of all pools except hot ones, which hold others' data for a while.
    fn capacity(&self) -> Space {
        let whole = Space {
            totalsize: self.df.total_bytes,
            usedsize: self.df.total_bytes - self.df.available_bytes.min(self.df.total_bytes),
        };
        if self.df.pools.is_empty() {
            return whole;
        }
        let pools = || self.df.pools.iter().filter(|pool| pool.hot_of.is_none());
        let totalsize = pools().map(|p| p.total_bytes).sum();
        let available: u64 = pools().map(|p| p.available_bytes).sum();
        Space { totalsize, usedsize: totalsize - available.min(totalsize) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::SrrEndpoint;
    use leeward_volume::admin::AnyRequest;
    use serde_json::{Value, json};

    fn volume(name: &str, at: &str, bytes: u64, files: u64, pool: &str) -> VolumeInfo {
        VolumeInfo {
            shard: 0,
            project: None,
            id: 0,
            name: name.into(),
            at: at.into(),
            uid: 0,
            quota_bytes: 0,
            quota_files: 0,
            usage: Usage { bytes, files, dirs: 1 },
            created_secs: 0,
            removing: name == "gone",
            snapshots: 0,
            snapshots_max: 0,
            snapshot_dir: ".snap".into(),
            snapshot_dir_visible: false,
            quota_counts_snapshots: false,
            bin_days: 0,
            audit_days: 0,
            public: false,
            copy: None,
            origin: None,
            snapshot_users: Vec::new(),
            snapshot_groups: Vec::new(),
            pool: pool.into(),
            misplaced_bytes: 0,
            stuck_segments: 0,
        }
    }

    fn quota(path: &str, bytes: u64, used_bytes: u64) -> QuotaInfo {
        QuotaInfo { path: path.into(), bytes, files: 0, used_bytes, used_files: 0 }
    }

    /// A cell with four volumes.
    struct Fake;

    impl Ask for Fake {
        fn ask<R: Request>(&mut self, request: &R) -> Result<R::Reply, Fail> {
            let reply = match request.clone().into() {
                AnyRequest::VolumeList(_) => json!({"volumes": [
                    volume("root", "/", 10, 1, ""),
                    volume("atlas", "/atlas", 200, 20, ""),
                    volume("scratch", "/atlas/scratch", 3000, 30, ""),
                    volume("gone", "/gone", 7, 7, ""),
                ]}),
                AnyRequest::QuotaList(_) => json!({
                    "quotas": [quota("/atlas", 1000, 200), quota("/atlas/data", 0, 5), quota("/at", 1, 1)],
                }),
                AnyRequest::DfShow(_) => {
                    json!(Df { total_bytes: 10_000, available_bytes: 5000, ..Df::default() })
                }
                AnyRequest::UsageShow(request) if request.path == "/atlas" => {
                    json!(Usage { bytes: 200, files: 20, dirs: 1 })
                }
                AnyRequest::UsageShow(_) => json!(Usage { bytes: 50, files: 5, dirs: 1 }),
                other => panic!("{other:?}"),
            };
            Ok(serde_json::from_value(reply).expect("a reply"))
        }
    }

    fn of(config: &SrrConfig) -> Value {
        of_paths(config, None)
    }

    fn of_paths(config: &SrrConfig, paths: Option<&[&str]>) -> Value {
        let paths: Option<Vec<String>> = paths.map(|paths| paths.iter().map(|&p| p.to_owned()).collect());
        let report =
            report(config, "host".into(), 1_790_000_000, paths.as_deref(), &mut Fake).expect("a report");
        let json = serde_json::to_value(report).expect("JSON");
        let schema: Value = serde_json::from_str(include_str!("../tests/srr-4.2.json")).expect("the schema");
        let wrong = wrong(&schema, &schema, &json, "");
        assert!(wrong.is_empty(), "{wrong:?}\n{json:#}");
        json["storageservice"].clone()
    }

    /// Violations of a schema: the part of JSON Schema that ours needs.
    fn wrong(root: &Value, schema: &Value, value: &Value, at: &str) -> Vec<String> {
        if let Some(name) = schema["$ref"].as_str() {
            return wrong(root, root.pointer(&name[1..]).expect("a definition"), value, at);
        }
        let is = match schema["type"].as_str() {
            Some("object") => value.is_object(),
            Some("array") => value.is_array(),
            Some("string") => value.is_string(),
            Some("integer") => value.is_i64() || value.is_u64(),
            None => true,
            other => panic!("{other:?}"),
        };
        let mut found = Vec::new();
        if !is {
            found.push(format!("{at}: {value} is no {}", schema["type"]));
        }
        if let Some(one_of) = schema["enum"].as_array()
            && !one_of.contains(value)
        {
            found.push(format!("{at}: {value} is none of {one_of:?}"));
        }
        for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if value.get(name).is_none() {
                found.push(format!("{at}: {name} is missing"));
            }
        }
        for (name, part) in value.as_object().into_iter().flatten() {
            match schema["properties"].get(name) {
                Some(schema) => found.extend(wrong(root, schema, part, &format!("{at}/{name}"))),
                None if schema["additionalProperties"] == false => {
                    found.push(format!("{at}: {name} is unknown"))
                }
                None => (),
            }
        }
        for part in value.as_array().into_iter().flatten().filter(|_| schema["items"].is_object()) {
            found.extend(wrong(root, &schema["items"], part, &format!("{at}[]")));
        }
        found
    }

    #[test]
    fn the_checker_finds_what_is_wrong() {
        let schema: Value = serde_json::from_str(include_str!("../tests/srr-4.2.json")).expect("the schema");
        let good = of(&SrrConfig::default());
        for (path, value) in [
            ("/implementation", json!(1)),
            ("/qualitylevel", json!("excellent")),
            ("/storageshares/0/usedsize", json!("1 TB")),
            ("/storageshares/0/vos", json!("atlas")),
            ("/storagecapacity/online", json!({"totalsize": 1})),
        ] {
            let mut bad = json!({"storageservice": good});
            *bad.pointer_mut(&format!("/storageservice{path}")).expect(path) = value;
            assert!(!wrong(&schema, &schema, &bad, "").is_empty(), "{path}");
        }
        let mut bad = json!({"storageservice": good});
        bad["storageservice"]["colour"] = json!("blue");
        assert_eq!(wrong(&schema, &schema, &bad, ""), ["/storageservice: colour is unknown"]);
        assert_eq!(wrong(&schema, &schema, &json!({}), ""), [": storageservice is missing"]);
    }

    #[test]
    fn each_volume_is_a_share() {
        let service = of(&SrrConfig::default());
        assert_eq!((&service["name"], &service["qualitylevel"]), (&json!("host"), &json!("production")));
        assert_eq!(service["storagecapacity"]["online"], json!({"totalsize": 10_000, "usedsize": 5000}));
        let shares = service["storageshares"].as_array().expect("shares");
        let line =
            |s: &Value| json!([s["name"], s["totalsize"], s["usedsize"], s["numberoffiles"], s["vos"][0]]);
        assert_eq!(
            shares.iter().map(line).collect::<Vec<_>>(),
            [
                json!(["root", 5010, 10, 1, "root"]),
                json!(["atlas", 1000, 200, 20, "atlas"]),
                json!(["scratch", 8000, 3000, 30, "scratch"]),
            ]
        );
    }

    #[test]
    fn who_is_limited_to_a_path_is_told_of_that() {
        let shares = |paths: &[&str]| {
            let service = of_paths(&SrrConfig::default(), Some(paths));
            let of = |share: &Value| share["path"][0].as_str().expect("a path").to_owned();
            let all = service["storageshares"].as_array().expect("shares");
            (all.iter().map(of).collect::<Vec<_>>(), service["storagecapacity"]["online"]["usedsize"].clone())
        };
        assert_eq!(shares(&["/atlas/scratch"]), (vec!["/atlas/scratch".to_owned()], json!(3000)));
        assert_eq!(shares(&["/atlas"]).0, ["/atlas", "/atlas/scratch"]);
        let (inside, used) = shares(&["/atlas/data"]);
        assert_eq!((inside, used), (vec!["/atlas/data".to_owned()], json!(50)), "not what is above it");
        assert_eq!(shares(&["/at"]).0, ["/at"]);
        assert_eq!(shares(&[]), (vec![], json!(0)));
        assert_eq!(shares(&["/"]).0.len(), 3);
    }

    #[test]
    fn shares_are_what_the_settings_say() {
        let share = |name: &str, path: &str| SrrShare {
            name: name.into(),
            path: path.into(),
            vos: vec!["atlas".into()],
        };
        let endpoint =
            SrrEndpoint { name: "dav".into(), url: "https://se:443/".into(), interface: "https".into() };
        let config = SrrConfig {
            name: Some("SITE".into()),
            quality_level: QualityLevel::PreProduction,
            endpoint: vec![endpoint],
            share: vec![share("ALL", "/atlas"), share("DATA", "/atlas/data")],
        };
        let service = of(&config);
        assert_eq!((&service["name"], &service["qualitylevel"]), (&json!("SITE"), &json!("pre-production")));
        assert_eq!(service["storageendpoints"][0]["assignedshares"], json!(["all"]));
        let [all, data] = [0, 1].map(|n| &service["storageshares"][n]);
        assert_eq!(
            (&all["usedsize"], &all["numberoffiles"]),
            (&json!(3200), &json!(50)),
            "with the volume attached below"
        );
        assert_eq!(all["totalsize"], 1000);
        assert_eq!(
            (&data["usedsize"], &data["totalsize"]),
            (&json!(50), &json!(850)),
            "what the quota above leaves"
        );
    }
}
