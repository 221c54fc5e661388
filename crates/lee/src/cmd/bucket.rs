//! `lee bucket`: which directories are published at the S3 door.

use super::{Invocation, yes_or_no};
use crate::fail::Fail;
use crate::output::{self, Side, Table};
use crate::session::Session;
use crate::{mounts, when};
use leeward_volume::admin::{self, BucketInfo, BucketInfos};
use serde_json::json;
use std::path::Path;

/// Publish directories at the S3 door
///
/// A bucket is a name for a directory. Its files are the objects; their paths below it are the
/// keys. Publishing changes no file and gives no rights: each request acts as the user of its key,
/// and modes and ACLs of the files apply as in the mount. lee up --s3 opens the door; lee key
/// create makes keys.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Publish a directory
    Create {
        /// 3 to 63 of a-z, 0-9, - and .
        name: String,
        /// The directory, from the cell's root or in the mount [default: /NAME, where a volume of
        /// this name is attached]
        #[arg(long, value_name = "DIR")]
        path: Option<String>,
        /// Anybody may read without a key what others may read by the files' modes (as user nobody)
        #[arg(long)]
        public: bool,
    },
    /// Change who may read without a key
    Set {
        /// The bucket's name
        name: String,
        /// Whether anybody may read what others may read by the files' modes
        #[arg(long, value_name = "yes|no", action = clap::ArgAction::Set, value_parser = yes_or_no)]
        public: bool,
    },
    /// List all buckets
    List,
    /// Remove a bucket; the directory and its files stay
    Remove {
        /// The bucket's name
        name: String,
    },
}

/// Runs it.
///
/// # Errors
/// What the cell says.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    match args.action {
        Action::Create { name, path, public } => create(invocation, name, path, public),
        Action::Set { name, public } => {
            let request = admin::BucketSet { name, public: Some(public), cors: None };
            show(invocation, &invocation.ask("bucket set", &request)?, |b| {
                let who = if b.public { "anybody may read" } else { "only who has a key" };
                format!("{}: {who}", b.name)
            })
        }
        Action::List => list(invocation),
        Action::Remove { name } => {
            invocation.ask("bucket remove", &admin::BucketRemove { name: name.clone() })?;
            output::show(invocation.format, &json!({"reply": "done", "bucket": name}), || {
                format!("bucket {name} is published no more; its files are where they were")
            })
        }
    }
}

fn create(invocation: &Invocation, name: String, path: Option<String>, public: bool) -> Result<(), Fail> {
    let reply = invocation.session("bucket create", |cell, session| {
        let path = match path {
            Some(path) => mounts::path_in_cell(cell.path(), Path::new(&path))?,
            None => volume_path(session, &name)?,
        };
        session.ask(&admin::BucketCreate { name, path, public })
    })?;
    show(invocation, &reply, |b| format!("bucket {}: {}", b.name, b.path))
}

/// Where the volume of this name is attached.
fn volume_path(session: &mut Session, name: &str) -> Result<String, Fail> {
    match session.ask(&admin::VolumeShow { name: name.into() }) {
        Ok(volume) => Ok(volume.at),
        Err(fail) => Err(Fail::new(format!("{fail} (another directory is named with --path)"))),
    }
}

fn show(
    invocation: &Invocation,
    reply: &BucketInfos,
    text: impl Fn(&BucketInfo) -> String,
) -> Result<(), Fail> {
    let bucket =
        reply.buckets.first().ok_or_else(|| Fail::new("the cell did not say what it made".to_owned()))?;
    output::show(invocation.format, bucket, || text(bucket))
}

fn list(invocation: &Invocation) -> Result<(), Fail> {
    let reply = invocation.ask("bucket list", &admin::BucketList)?;
    output::reply(invocation.format, &reply, || {
        if reply.buckets.is_empty() {
            return "nothing is published: lee bucket create NAME --path DIR".into();
        }
        let columns = [
            ("BUCKET", Side::Left),
            ("DIRECTORY", Side::Left),
            ("SINCE", Side::Left),
            ("WITHOUT A KEY", Side::Left),
        ];
        let row = |b: &BucketInfo| {
            let public = if b.public { "read" } else { "-" };
            [b.name.clone(), b.path.clone(), when::utc(b.created_secs), public.into()]
        };
        Table::new(&columns).rows(&reply.buckets, row).to_string()
    })
}
