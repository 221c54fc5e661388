//! `lee lab s3`: load on any S3 endpoint.

use super::Invocation;
use super::lab::left_behind;
use super::probe::write_page;
use crate::fail::{Fail, text};
use crate::output::{self, Side, Table};
use crate::progress::Bar;
use crate::{size, system, when};
use leeward_bucket::{Keys, Location};
use leeward_lab::s3::crew::Hand;
use leeward_lab::s3::run::{self, Loads, Plan, Report};
use leeward_lab::s3::sign;
use leeward_lab::s3::target::{Parts, Target};
use leeward_lab::s3::{Op, page, worker};
use leeward_volume::admin::Progress;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The region where nobody says: what endpoints other than those of AWS expect.
const REGION: &str = "us-east-1";

/// Show how many connections an S3 endpoint bears
///
/// Clients that put, get and list objects, each on a connection of its own, one request after the
/// other: twice as many in each step, until more requests fail than --errors allows or p99 is above
/// --p99; then the gap is halved. Failures are told apart (refused, reset, closed, time-out, TLS,
/// the status, wrong bytes), what is read is compared. Keys and region are those of the environment
/// or of the profile (AWS_ACCESS_KEY_ID, AWS_PROFILE, ...). Loads other people's machines: ask
/// before you point it at one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// http://HOST:PORT/BUCKET/PREFIX, or s3://BUCKET/PREFIX at AWS_ENDPOINT_URL
    url: String,

    /// Just these numbers of connections, with commas, instead of looking for the highest
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = parse_connections, conflicts_with_all = ["from", "to"])]
    connections: Vec<u64>,

    /// Connections to begin with
    #[arg(long, value_name = "N", default_value = "16", value_parser = parse_connections)]
    from: u64,

    /// Connections at most
    #[arg(long, value_name = "N", default_value = "4096", value_parser = parse_connections)]
    to: u64,

    /// What clients ask, by weight: put, get, head, list
    #[arg(long, value_name = "OP=N,...", default_value = "put=1,get=1", value_parser = parse_mix)]
    mix: Mix,

    /// Sizes of objects, by weight: 4K, or 4K=9,1M=1
    #[arg(long, value_name = "SIZE=N,...", default_value = "4K", value_parser = parse_sizes)]
    size: Sizes,

    /// How long a step lasts
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = when::parse_duration)]
    each: Duration,

    /// End a step after so many requests, too
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,

    /// How long each client rests after an answer [default: not at all]
    #[arg(long, value_name = "TIME", value_parser = when::parse_duration)]
    pause: Option<Duration>,

    /// How long a request may take with its connection
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = when::parse_duration)]
    timeout: Duration,

    /// Up to which part of failures a load holds
    #[arg(long, value_name = "PERCENT", default_value = "0.01%", value_parser = parse_percent)]
    errors: f64,

    /// Up to which p99 a load holds [default: any]
    #[arg(long, value_name = "TIME", value_parser = when::parse_duration)]
    p99: Option<Duration>,

    /// Hold so many connections more, which ask once and then do nothing
    #[arg(long, value_name = "N", default_value_t = 0)]
    idle: u64,

    /// Objects put before the first step [default: 1000 where something is read]
    #[arg(long, value_name = "N", value_parser = parse_count)]
    fill: Option<u64>,

    /// Objects there may be at a time; then they are put anew
    #[arg(long, value_name = "N", default_value = "100k", value_parser = parse_count)]
    objects: u64,

    /// Bytes that they may have
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = size::parse_space)]
    space: u64,

    /// Processes of the load at least; there are more where file descriptors run out
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=256))]
    processes: u64,

    /// Addresses of this machine that connections come from, in turn: each has 28,000 ports; to
    /// 127.0.0.0/8 there are always enough
    #[arg(long, value_name = "IP,...", value_delimiter = ',')]
    source: Vec<IpAddr>,

    /// Processes of the server on this machine, whose memory and processor time is to be watched
    #[arg(long, value_name = "PID,...", value_delimiter = ',')]
    server_pid: Vec<u32>,

    /// Certificates of authorities (PEM) in place of the system's [default: AWS_CA_BUNDLE]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// Make the bucket, and remove it in the end
    #[arg(long)]
    make_bucket: bool,

    /// Write a page with plots here; it needs nothing but itself
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

#[derive(Clone, Debug)]
struct Mix(Vec<(Op, u32)>);

#[derive(Clone, Debug)]
struct Sizes(Vec<(u64, u32)>);

fn parse_connections(text: &str) -> Result<u64, String> {
    let found = parse_count(text).ok().filter(|count| *count <= 10_000_000);
    found.ok_or_else(|| {
        format!("`{text}` is no number of connections: write one up to 10M, such as 2000 or 10k")
    })
}

fn parse_count(text: &str) -> Result<u64, String> {
    match size::parse_count(text)? {
        size::Limit(0) => Err(format!("`{text}` is no count here: write a number, such as 500k or 1M")),
        size::Limit(count) => Ok(count),
    }
}

/// `A=3,B` as ("A", 3) and ("B", 1).
fn weights(text: &str) -> Option<Vec<(&str, u32)>> {
    let weight = |part: &'_ str| -> Option<(usize, u32)> {
        let Some(at) = part.find('=') else { return Some((part.len(), 1)) };
        part[at + 1..].parse().ok().filter(|weight| *weight > 0).map(|weight| (at, weight))
    };
    text.split(',').map(|part| weight(part).map(|(end, weight)| (part[..end].trim(), weight))).collect()
}

fn parse_mix(text: &str) -> Result<Mix, String> {
    let named = |(name, weight): (&str, u32)| Op::named(name).map(|op| (op, weight));
    let mix = weights(text).and_then(|all| all.into_iter().map(named).collect());
    mix.map(Mix).ok_or_else(|| {
        format!("`{text}` is no mix: write put, get, head, list with weights, such as put=1,get=4")
    })
}

fn parse_sizes(text: &str) -> Result<Sizes, String> {
    let wrong =
        || format!("`{text}` is no size: write one, or several with weights, such as 4K or 4K=9,1M=1");
    let all = weights(text).ok_or_else(wrong)?;
    let sized = |(size, weight)| size::parse_space(size).map(|size| (size, weight));
    all.into_iter().map(sized).collect::<Result<_, _>>().map(Sizes).map_err(|_| wrong())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    let number = text.trim_end_matches('%').trim().parse::<f64>().ok();
    let part = number.filter(|percent| (0.0..=100.0).contains(percent)).map(|percent| percent / 100.0);
    part.ok_or_else(|| format!("`{text}` is no percentage: write one from 0 to 100, such as 0.01%"))
}

/// Runs it.
///
/// # Errors
/// An endpoint that cannot be measured.
pub fn run(invocation: &Invocation, args: Args) -> Result<(), Fail> {
    let page = args.report.clone();
    let plan = plan(args)?;
    let stop = system::stop_on_signals()?;
    let bar = Bar::new(invocation.format);
    let found = run::run(&invocation.env, &plan, &stop, &launch, &mut |progress| {
        let phase = progress.phase.clone();
        bar.show(&Progress { phase, done: progress.done, total: progress.total });
    });
    bar.clear();
    let found = found?;
    if let Some(file) = &page {
        write_page(file, &page::page(&found, when::utc))?;
    }
    output::show(invocation.format, &found, || {
        let page = page.as_ref().map(|file| format!("wrote {}\n", file.display()));
        format!("{}{}", words(&found), page.unwrap_or_default())
    })?;
    left_behind(found.left.as_ref())
}

fn plan(args: Args) -> Result<Plan, Fail> {
    let loads = match args.connections.as_slice() {
        [] if args.from > args.to => {
            return Err(Fail::usage("--from is above --to: write the smaller one first"));
        }
        [] => Loads::Search(args.from, args.to),
        steps => Loads::Steps(steps.to_vec()),
    };
    Ok(Plan {
        target: target(&args.url, args.ca)?,
        loads,
        mix: args.mix.0,
        sizes: args.size.0,
        each: args.each,
        requests: args.requests,
        pause: args.pause.unwrap_or_default(),
        patience: args.timeout,
        errors_max: args.errors,
        p99_max: args.p99,
        idle: args.idle,
        fill: args.fill,
        objects: args.objects.max(args.fill.unwrap_or(0)),
        space_bytes: args.space,
        processes: args.processes,
        sources: args.source,
        server: args.server_pid,
        make_bucket: args.make_bucket,
    })
}

/// From the URL and the usual variables.
fn target(url: &str, ca: Option<PathBuf>) -> Result<Target, Fail> {
    let wrong = |e: leeward_bucket::Error| Fail::new(e.to_string());
    let is_bucket = url.starts_with("s3://");
    // of another URL only the region counts; any name of a bucket does to ask for it
    let place = Location::find(if is_bucket { url } else { "s3://any" }).map_err(wrong)?;
    let keys = Keys::find(place.url.profile.as_deref()).map_err(wrong)?;
    let region = place.region.clone().unwrap_or_else(|| REGION.into());
    let url = if is_bucket {
        let endpoint = place.endpoint.clone().unwrap_or_else(|| format!("https://{}", place.host()));
        format!("{}/{}/{}", endpoint.trim_end_matches('/'), place.url.bucket, place.url.prefix)
    } else {
        url.to_string()
    };
    let Parts { tls, host, port, bucket, prefix } = Parts::parse(&url)?;
    let authorities =
        ca.or_else(|| std::env::var_os("AWS_CA_BUNDLE").filter(|v| !v.is_empty()).map(PathBuf::from));
    let keys = sign::Keys { id: keys.id, secret: keys.secret, token: keys.token };
    Ok(Target { tls, host, port, bucket, prefix, region, keys, authorities })
}

/// A process for a part of the load.
fn launch() -> io::Result<Hand> {
    let mut child = super::lab::another(&["lab", "s3-load"])?;
    let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(io::Error::other("no pipes to its process"));
    };
    Ok(Hand { input: Box::new(input), output: Box::new(output), child: Some(child) })
}

/// The part of a load that another process has ordered.
///
/// # Errors
/// When nobody waits for it.
pub fn serve(invocation: &Invocation) -> Result<(), Fail> {
    worker::serve(&invocation.env, io::stdin(), io::stdout()).map_err(|e| {
        Fail::new(format!(
            "not ordered by `lee lab s3`, or not any more, which is what this is for: {}",
            text(&e)
        ))
    })
}

fn words(found: &Report) -> String {
    let columns: Vec<(String, Side)> =
        page::HEAD.iter().map(|name| (name.to_uppercase(), Side::Right)).collect();
    let columns: Vec<(&str, Side)> = columns.iter().map(|(name, side)| (name.as_str(), *side)).collect();
    let mut text = format!("{}\n", Table::new(&columns).rows(&page::rows(found), Vec::clone));
    for row in page::failure_rows(found) {
        let [connections, class, count, said] = row.as_slice() else { continue };
        let said = if said.is_empty() { String::new() } else { format!(" ({})", output::printable(said)) };
        text.push_str(&format!("{connections} connections: {count} x {class}{said}\n"));
    }
    for step in found.steps.iter().filter(|step| step.load_was_the_limit) {
        text.push_str(&format!(
            "{} connections: the load itself was the limit ({:.1} processors); more with --processes\n",
            step.connections, step.load_processors
        ));
    }
    text.extend(page::idle(found).map(|idle| format!("{idle}\n")));
    text.push_str(&format!("{}: {}\n", found.url, page::verdict(found)));
    if found.stopped {
        text.push_str("stopped before its end\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mixes_and_sizes_are_read() {
        assert_eq!(parse_mix("put=1,get=4").map(|mix| mix.0), Ok(vec![(Op::Put, 1), (Op::Get, 4)]));
        assert_eq!(parse_mix("list").map(|mix| mix.0), Ok(vec![(Op::List, 1)]));
        assert_eq!(parse_sizes("4K=9,1M=1").map(|sizes| sizes.0), Ok(vec![(4096, 9), (1 << 20, 1)]));
        assert_eq!(parse_percent("0.01%"), Ok(0.0001));
        assert_eq!(parse_connections("10k"), Ok(10_000));
        for text in ["", "put=0", "put=x", "post", "put,,get", "put=1=2", "delete"] {
            assert!(parse_mix(text).is_err(), "{text}");
        }
        for text in ["", "none", "4K=", "x"] {
            assert!(parse_sizes(text).is_err(), "{text}");
        }
        assert!(
            parse_percent("101").is_err()
                && parse_connections("0").is_err()
                && parse_connections("1G").is_err()
        );
    }
}
