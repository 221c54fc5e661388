//! The list of admin requests, and what each of them is: a struct with a reply type and a `run`.
//!
//! The list at the end gives the control socket its wire format: [`AnyRequest`] and [`AnyReply`].
//! Code that has a request of a known type, such as a command of `lee`, uses the type and gets its
//! reply typed.

use crate::admin;
use crate::admin::failure::about;
use crate::admin::{Failure, Progress};
use crate::cell::Cell;
use crate::shard::Shard;
use leeward_env::Ctx;
use leeward_fs::NodeId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;

/// A request of an operator. Only this crate has a [`Shard`], so all requests are in this crate.
pub trait Request: Clone + Debug + Into<AnyRequest> + Serialize + DeserializeOwned {
    /// The answer.
    type Reply: Reply;
    /// What the serving process must read again after this request.
    const REFRESH: Refresh = Refresh::Nothing;

    /// Which shard it concerns, in a cell of several.
    fn concerns(&self) -> Concerns<'_> {
        Concerns::Cell
    }

    /// Adds the answer of another shard to the answer of those before, if it is asked of all.
    fn add(_all: &mut Self::Reply, _other: Self::Reply) {}

    /// Does what is asked.
    ///
    /// # Errors
    /// The thing, the cause and the next step, for a person.
    fn run(&self, shard: &Shard, caller: &mut Caller<'_>) -> Result<Self::Reply, Failure>;
}

/// Which shard of a cell a request concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Concerns<'a> {
    /// The first one, which has the tables of the cell.
    Cell,
    /// The one that has what is at this path, or what is next to it on the way.
    Path(&'a str),
    /// The one that has the volume of this name.
    Volume(&'a str),
    /// All of them: their answers are one.
    All,
}

/// The answer to a [`Request`].
pub trait Reply: Debug + Serialize + DeserializeOwned {
    /// Its name in the field `reply` of JSON for scripts.
    const KIND: &'static str;
}

/// The answer to a request that has nothing to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {}

impl Reply for Done {
    const KIND: &'static str = "done";
}

/// What a serving process keeps beside the cell, and must read again when a request changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refresh {
    /// Nothing.
    Nothing,
    /// Weights and ceilings at the gate.
    Flows,
    /// Users, keys, tokens and hosts that are let in.
    Accounts,
    /// Who is in which group.
    Groups,
}

/// Who asks, and who hears how far a long request is.
pub struct Caller<'a> {
    pub(crate) ctx: &'a Ctx,
    pub(crate) progress: &'a mut dyn FnMut(Progress),
}

impl Shard {
    /// Makes what a request changed durable, before the request is answered.
    pub(super) fn settle(&self) -> Result<(), Failure> {
        self.commit_now(&Ctx::system()).map_err(about("cannot be made durable"))
    }

    /// The inode at a path.
    pub(super) fn node_at(&self, path: &str) -> Result<NodeId, Failure> {
        // of a copy the volume, not what it shows
        let node = self.resolve(path).map_err(about(path))?;
        self.beside(node, |shard| Ok(shard.lock().live_node(node))).map_err(about(path))
    }
}

/// `NAME NOTED,` for each request; all are in [`admin`](crate::admin). Those that are `noted` are
/// kept in the event log of the cell: they change something, and somebody may want to know later
/// who asked. Others change nothing, are asked again and again by the cells themselves, or are in
/// the log of a volume.
macro_rules! requests {
    ($($name:ident $noted:ident,)*) => {
        /// A request of any kind, as the control socket carries it: `{"request":"volume-show",…}`.
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(tag = "request", rename_all = "kebab-case")]
        #[allow(missing_docs)] // each variant holds the request of its name
        pub enum AnyRequest {
            $($name(admin::$name),)*
        }

        $(impl From<admin::$name> for AnyRequest {
            fn from(request: admin::$name) -> AnyRequest {
                AnyRequest::$name(request)
            }
        })*

        /// The answer to an [`AnyRequest`]. Its JSON is that of the request's [`Request::Reply`].
        #[derive(Clone, Debug, Serialize)]
        #[serde(untagged)]
        #[allow(missing_docs)] // each variant holds the reply to the request of its name
        pub enum AnyReply {
            $($name(Box<<admin::$name as Request>::Reply>),)*
        }

        impl AnyRequest {
            /// The names of all requests.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(AnyRequest::$name(_) => stringify!($name),)*
                }
            }

            /// Whether the event log of the cell says who asked.
            pub fn is_noted(&self) -> bool {
                match self {
                    $(AnyRequest::$name(_) => stringify!($noted) == "noted",)*
                }
            }

            /// [`Request::REFRESH`] of the request.
            pub fn refresh(&self) -> Refresh {
                match self {
                    $(AnyRequest::$name(_) => <admin::$name as Request>::REFRESH,)*
                }
            }

            /// [`Request::run`] of the request, where it belongs.
            pub(crate) fn run(&self, cell: &Cell, caller: &mut Caller<'_>) -> Result<AnyReply, Failure> {
                match self {
                    $(AnyRequest::$name(request) => {
                        cell.run(request, caller).map(|reply| AnyReply::$name(Box::new(reply)))
                    })*
                }
            }
        }
    };
}

requests! {
    VolumeCreate noted,
    VolumeCreateIn noted,
    VolumeList unnoted,
    VolumeShow unnoted,
    VolumeRename noted,
    VolumeRemove noted,
    VolumeAllow noted,
    VolumeSet noted,
    VolumeMoveData noted,
    VolumePromote noted,
    VolumeDemote noted,
    CopyCreate noted,
    CopyList unnoted,
    CopyDetach noted,
    CopyLimits unnoted,
    LimitList unnoted,
    MirrorSet noted,
    MirrorUnset noted,
    MirrorNote unnoted,
    MirrorProven unnoted,
    MirrorList unnoted,
    BackupSet noted,
    BackupNote unnoted,
    BackupUnset noted,
    BackupList unnoted,
    PoolCreate noted,
    PoolList unnoted,
    PoolShow unnoted,
    PoolStore noted,
    PoolTier noted,
    PoolUntier noted,
    PoolRemove noted,
    Scrub noted,
    ScrubEvery noted,
    ShardAdd noted,
    ShardList unnoted,
    SnapCreate unnoted,
    SnapList unnoted,
    SnapRemove unnoted,
    SnapRename unnoted,
    SnapLock unnoted,
    SnapUnlock unnoted,
    SnapUsageList unnoted,
    SnapDiff unnoted,
    SnapRestore noted,
    SnapSend unnoted,
    SnapReceive unnoted,
    SnapDigest unnoted,
    ScheduleSet noted,
    ScheduleList unnoted,
    ScheduleRemove noted,
    QuotaSet noted,
    QuotaShow unnoted,
    QuotaList unnoted,
    AclSet noted,
    AclShow unnoted,
    OwnerLimit noted,
    TransferNote unnoted,
    TransferReport unnoted,
    ProjectCreate noted,
    ProjectSet noted,
    ProjectMove noted,
    ProjectRemove noted,
    ProjectList unnoted,
    ProjectShow unnoted,
    OwnerUsage unnoted,
    FlowSet noted,
    FlowReset noted,
    FlowList unnoted,
    BucketCreate noted,
    BucketSet noted,
    BucketRemove noted,
    BucketList unnoted,
    GroupCreate noted,
    GroupSet noted,
    GroupAdd noted,
    GroupDrop noted,
    GroupRemove noted,
    GroupList unnoted,
    GroupShow unnoted,
    GroupFind unnoted,
    GroupLimit noted,
    GroupRange noted,
    UserCreate noted,
    UserSet noted,
    UserList unnoted,
    UserShow unnoted,
    KeyCreate noted,
    KeyList unnoted,
    KeyRevoke noted,
    TokenMake noted,
    TokenRevoke noted,
    HostAdd noted,
    HostInvite noted,
    HostList unnoted,
    HostShow unnoted,
    HostSet noted,
    HostRemove noted,
    BinList unnoted,
    BinRestore noted,
    BinEmpty noted,
    EventList unnoted,
    EventVerify unnoted,
    FileCensus unnoted,
    UsageReport unnoted,
    UsageShow unnoted,
    DfShow unnoted,
    StatsShow unnoted,
    FormatRaise noted,
    Fsck unnoted,
    SyncAll unnoted,
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, from_value, json, to_value};

    /// What the other end of a socket reads of a request.
    fn sent(request: impl Request) -> Value {
        let sent = to_value(request.into()).expect("JSON");
        let heard: AnyRequest = from_value(sent.clone()).expect("a request");
        assert_eq!(to_value(heard).expect("JSON"), sent);
        sent
    }

    #[test]
    fn requests_have_a_name_and_their_fields() {
        assert_eq!(sent(admin::SyncAll), json!({"request": "sync-all"}));
        let rename = admin::VolumeRename { name: "a".into(), to: "b".into() };
        assert_eq!(sent(rename), json!({"request": "volume-rename", "name": "a", "to": "b"}));
        let change = admin::StoreChange::Add { url: "file:///d".into() };
        assert_eq!(
            sent(admin::PoolStore { name: "p".into(), change, force: false, lose_data: false }),
            json!({
                "request": "pool-store",
                "name": "p",
                "change": {"change": "add", "url": "file:///d"},
                "force": false,
                "lose_data": false,
            })
        );
    }

    #[test]
    fn benchmarks_ask_what_there_is() {
        let bench = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bench");
        let files = std::fs::read_dir(bench).expect("a directory").map(|entry| entry.expect("a file").path());
        let mut asked = 0;
        for text in files.filter(|path| path.is_file()).map(std::fs::read_to_string) {
            for after in text.expect("text").split("cell.ask(\"").skip(1) {
                let name = after.split('"').next().expect("a name");
                let heard = from_value::<AnyRequest>(json!({"request": name}));
                let is_unknown = heard.is_err_and(|e| e.to_string().contains("unknown variant"));
                assert!(!is_unknown, "{name}");
                asked += 1;
            }
        }
        assert!(asked > 3);
    }

    #[test]
    fn an_unknown_request_is_an_error_that_names_it() {
        let unknown = from_value::<AnyRequest>(json!({"request": "volume-paint"}));
        assert!(unknown.expect_err("unknown").to_string().contains("volume-paint"));
        let incomplete = from_value::<AnyRequest>(json!({"request": "volume-show"}));
        assert!(incomplete.expect_err("incomplete").to_string().contains("name"));
    }

    #[test]
    fn a_reply_is_sent_as_it_is() {
        let reply = AnyReply::BinEmpty(Box::new(admin::BinEmptied { purged: 7 }));
        assert_eq!(to_value(reply).expect("JSON"), json!({"purged": 7}));
        let reply = AnyReply::SyncAll(Box::new(Done {}));
        from_value::<Done>(to_value(reply).expect("JSON")).expect("a reply");
    }
}
