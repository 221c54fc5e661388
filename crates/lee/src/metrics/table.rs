//! The table of all metrics. `docs/METRICS.md` is made from it, too.
//!
//! Names end in their unit (`_seconds`, `_bytes`), those of counters in `_total`. Labels have few
//! values: kinds of operations, classes, causes, calls; volumes and users are limited by `busiest`.

use super::Scrape;
use super::text::Lines;
use crate::mirror::MirrorStatus;
use leeward_door::listen::{Family, Figures, OfPair};
use leeward_env::waits::Cause;
use leeward_volume::admin::{PoolInfo, ShardInfo};
use leeward_volume::{CallFigures, Condition, GateFigures, Health, TierHealth};

/// Mirrors that have a series of their own, and backups.
const MIRRORS_SHOWN: usize = 50;

/// Type of a metric in Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process runs.
    Counter,
    /// The current value.
    Gauge,
    /// Counts by duration.
    Histogram,
}

impl Kind {
    /// The word of the text format.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        }
    }
}

/// A metric.
pub struct Metric {
    /// Name.
    pub name: &'static str,
    /// Kind.
    pub kind: Kind,
    /// Labels besides those that Prometheus adds.
    pub labels: &'static [&'static str],
    /// Its meaning, in a sentence.
    pub help: &'static str,
    /// Gives its values.
    pub values: fn(&Scrape, &mut Lines<'_>),
}

/// Classes of answers.
const STATUS: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Each door with each address family, and the labels of the two.
fn for_families(s: &Scrape, mut f: impl FnMut(&Figures, Family, &[&str; 2])) {
    for door in &s.doors {
        Family::ALL.iter().for_each(|family| f(door, *family, &[door.door().name(), family.name()]));
    }
}

/// Each user in each bucket, with the door's name.
fn for_pairs(s: &Scrape, mut f: impl FnMut(&str, &OfPair)) {
    for door in &s.doors {
        door.pairs().iter().for_each(|pair| f(door.door().name(), pair));
    }
}

const fn counter(name: &'static str, help: &'static str, values: fn(&Scrape, &mut Lines<'_>)) -> Metric {
    Metric { name, kind: Kind::Counter, labels: &[], help, values }
}

const fn gauge(name: &'static str, help: &'static str, values: fn(&Scrape, &mut Lines<'_>)) -> Metric {
    Metric { name, kind: Kind::Gauge, labels: &[], help, values }
}

const fn histogram(name: &'static str, help: &'static str, values: fn(&Scrape, &mut Lines<'_>)) -> Metric {
    Metric { name, kind: Kind::Histogram, labels: &[], help, values }
}

/// A figure of each mirror, of as many as are shown.
fn of_mirrors(s: &Scrape, out: &mut Lines<'_>, figure: fn(&MirrorStatus) -> u64) {
    for status in s.mirrors.iter().take(MIRRORS_SHOWN) {
        out.count(&[&status.mirror.volume, &status.mirror.to], figure(status));
    }
}

impl Metric {
    const fn by(self, labels: &'static [&'static str]) -> Metric {
        Metric { labels, ..self }
    }
}

/// The table.
pub const METRICS: &[Metric] = &[
    // what users see
    histogram(
        "leeward_operation_seconds",
        "Time from the arrival of an operation to its answer, with all its waits.",
        |s, out| s.latency.iter().for_each(|l| {
                out.histogram(&[l.door.name(), l.operation, l.class], &l.latency);
            }),
    )
    .by(&["door", "operation", "class"]),
    histogram(
        "leeward_volume_operation_seconds",
        "Time from the arrival of an operation to its answer, by volume; \"snapshots\": all reads in snapshots, \"other\": the less busy volumes.",
        |s, out| s.volumes.iter().for_each(|(door, name, v)| out.histogram(&[door.name(), name], &v.latency)),
    )
    .by(&["door", "volume"]),
    counter(
        "leeward_operation_errors_total",
        "Operations that ended with an error, also such as \"no such file\".",
        |s, out| s.volumes.iter().for_each(|(door, name, v)| out.count(&[door.name(), name], v.errors)),
    )
    .by(&["door", "volume"]),
    counter("leeward_read_bytes_total", "Bytes that users read.", |s, out| {
        s.volumes.iter().for_each(|(door, name, v)| out.count(&[door.name(), name], v.read_bytes));
    })
    .by(&["door", "volume"]),
    counter("leeward_written_bytes_total", "Bytes that users wrote.", |s, out| {
        s.volumes.iter().for_each(|(door, name, v)| out.count(&[door.name(), name], v.written_bytes));
    })
    .by(&["door", "volume"]),
    // servers of the cell
    gauge(
        "leeward_servers_standing_by",
        "Other servers that would take the cell if this one ended. Only of a cell in a bucket.",
        |s, out| s.server.iter().for_each(|server| out.count(&[], server.standing_by)),
    ),
    gauge(
        "leeward_servers_turn",
        "Number of the turn with which this server has the cell: higher whenever another process has it.",
        |s, out| s.server.iter().for_each(|server| out.count(&[], server.turn)),
    ),
    gauge(
        "leeward_servers_in_touch",
        "1: this server heard of the bucket lately enough to answer; 0: requests wait until it does.",
        |s, out| s.server.iter().for_each(|server| out.count(&[], server.in_time.into())),
    ),
    // other machines
    gauge("leeward_leases", "Inodes that machines may keep copies of, counted for each machine.", |s, out| {
        out.count(&[], s.leases.0 as u64);
    }),
    counter("leeward_lease_recalls_total", "Messages to machines that they are to drop copies.", |s, out| {
        out.count(&[], s.leases.1);
    }),
    counter("leeward_leases_taken_total", "Times that a machine did not answer, and lost all its leases.", |s, out| {
        out.count(&[], s.leases.2);
    }),
    gauge("leeward_host_sessions", "Sessions of a machine that are connected.", |s, out| {
        s.hosts.iter().for_each(|h| out.count(&[&h.name], h.sessions));
    })
    .by(&["host"]),
    counter("leeward_host_requests_total", "Operations that a machine has asked for.", |s, out| {
        s.hosts.iter().for_each(|h| out.count(&[&h.name], h.requests));
    })
    .by(&["host"]),
    counter("leeward_host_read_bytes_total", "Bytes that a machine has read.", |s, out| {
        s.hosts.iter().for_each(|h| out.count(&[&h.name], h.read_bytes));
    })
    .by(&["host"]),
    counter("leeward_host_written_bytes_total", "Bytes that a machine has written.", |s, out| {
        s.hosts.iter().for_each(|h| out.count(&[&h.name], h.written_bytes));
    })
    .by(&["host"]),
    counter(
        "leeward_host_operation_seconds_total",
        "Time from the arrival of operations of a machine to their answers, with all their waits.",
        |s, out| s.hosts.iter().for_each(|h| out.nanos(&[&h.name], h.nanos)),
    )
    .by(&["host"]),
    counter(
        "leeward_host_waited_for_seconds_total",
        "Time that operations, of whomever, waited for a machine to give leases back.",
        |s, out| s.hosts.iter().for_each(|h| out.nanos(&[&h.name], h.waited_for_nanos)),
    )
    .by(&["host"]),
    counter(
        "leeward_host_lost_changes_total",
        "Changes that programs of a machine were told of and that are lost, mostly as it was silent. `lee why` says whose.",
        |s, out| s.hosts.iter().for_each(|h| out.count(&[&h.name], h.lost)),
    )
    .by(&["host"]),
    // doors
    gauge("leeward_door_connections", "Open connections to a door, by address family.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.open(f)));
    })
    .by(&["door", "family"]),
    counter("leeward_door_connections_total", "Connections that a door has accepted.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.accepted(f)));
    })
    .by(&["door", "family"]),
    counter(
        "leeward_door_requests_total",
        "Requests at a door, by the class of the answer's status. 4xx includes 499: the client went away.",
        |s, out| {
            for_families(s, |d, f, labels| {
                for (class, count) in STATUS.iter().zip(d.requests(f)) {
                    out.count(&[labels[0], labels[1], *class], count);
                }
            });
        },
    )
    .by(&["door", "family", "status"]),
    counter("leeward_door_received_bytes_total", "Bytes of bodies from clients.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.bytes(f).0));
    })
    .by(&["door", "family"]),
    counter("leeward_door_sent_bytes_total", "Bytes of bodies to clients.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.bytes(f).1));
    })
    .by(&["door", "family"]),
    gauge("leeward_door_uploads", "Uploads in parts that have begun and not ended.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.unfinished().uploads));
    })
    .by(&["door"]),
    gauge("leeward_door_upload_bytes", "Bytes in parts of uploads that have not ended.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.unfinished().bytes));
    })
    .by(&["door"]),
    counter("leeward_door_refused_connections_total", "Connections that were refused because there were too many.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.refused()));
    })
    .by(&["door"]),
    counter("leeward_door_timeouts_total", "Connections that were cut because the client took too long.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.timed_out()));
    })
    .by(&["door"]),
    counter("leeward_door_handshake_failures_total", "TLS handshakes that failed.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.handshakes_failed()));
    })
    .by(&["door"]),
    counter(
        "leeward_door_user_requests_total",
        "Requests by user and bucket (none at the HTTP door). Pairs beyond the limit count together as \"other\".",
        |s, out| {
            for_pairs(s, |door, pair| {
                for (class, count) in STATUS.iter().zip(pair.requests).filter(|(_, count)| *count > 0) {
                    out.count(&[door, &pair.user, &pair.bucket, *class], count);
                }
            });
        },
    )
    .by(&["door", "user", "bucket", "status"]),
    counter("leeward_door_user_bytes_total", "Bytes of bodies by user and bucket (none at the HTTP door).", |s, out| {
        for_pairs(s, |door, pair| {
            out.count(&[door, &pair.user, &pair.bucket, "received"], pair.received_bytes);
            out.count(&[door, &pair.user, &pair.bucket, "sent"], pair.sent_bytes);
        });
    })
    .by(&["door", "user", "bucket", "direction"]),
    // waits
    counter("leeward_wait_seconds_total", "Time that operations of a user (by number) waited, by cause.", |s, out| {
        for (user, counts) in &s.users {
            Cause::ALL.iter().zip(counts).for_each(|(cause, nanos)| out.nanos(&[user, cause.name()], *nanos));
        }
    })
    .by(&["user", "cause"]),
    counter(
        "leeward_waited_behind_seconds_total",
        "Time that operations of all users waited behind this user (by number), as far as that is known.",
        |s, out| s.users.iter().for_each(|(user, counts)| out.nanos(&[user], counts[Cause::ALL.len()])),
    )
    .by(&["user"]),
    gauge("leeward_gate_queue_length", "Requests that wait for their turn, for their user's ceiling, or for a thread that may wait.", |s, out| {
        out.count(&["turn"], s.waiting_for_turn);
        out.count(&["ceiling"], s.waiting_for_ceiling);
        out.count(&["thread"], s.waiting_for_thread);
    })
    .by(&["queue"]),
    // memory and commits
    gauge("leeward_dirty_bytes", "File data in memory that is not in a store yet.", |s, out| {
        out.count(&[], s.figures.stats.dirty_bytes);
    }),
    gauge("leeward_dirty_limit_bytes", "Most file data in memory that is not in a store yet.", |s, out| {
        out.count(&[], s.figures.dirty_bytes_max);
    }),
    histogram("leeward_commit_seconds", "Duration of metadata commits, failed ones included.", |s, out| {
        out.histogram(&[], &s.figures.commits);
    }),
    counter("leeward_commit_errors_total", "Commits that failed. A commit is tried again if the disk was full.", |s, out| {
        out.count(&[], s.figures.commit_errors);
    }),
    counter("leeward_committed_records_total", "Records that commits wrote.", |s, out| {
        out.count(&[], s.figures.committed_records);
    }),
    gauge("leeward_running_records", "Changed records that wait for the next commit.", |s, out| {
        out.count(&[], s.figures.stats.running_records);
    }),
    gauge("leeward_broken", "1 when nothing can be changed until the cell is opened again.", |s, out| {
        out.count(&[], u64::from(s.figures.broken));
    }),
    gauge("leeward_orphans", "Removed files that are still open.", |s, out| {
        out.count(&[], s.figures.stats.orphans);
    }),
    // the metadata engine
    gauge("leeward_journal_bytes", "Size of the metadata journal on disk.", |s, out| {
        out.count(&[], s.figures.engine.journal_bytes);
    }),
    gauge("leeward_journal_usual_bytes", "Above this size the journal is unusually long; 0: the cell has no journal.", |s, out| {
        out.count(&[], s.figures.engine.journal_bytes_usual);
    }),
    gauge("leeward_table_bytes", "Size of the metadata tables on disk.", |s, out| {
        out.count(&[], s.figures.engine.table_bytes);
    }),
    gauge("leeward_memtable_bytes", "Metadata in memory that waits to be flushed to tables. The journal has it.", |s, out| {
        out.count(&[], s.figures.engine.memtable_bytes);
    }),
    gauge("leeward_memtables_sealed", "Tables in memory that are full and wait to be flushed.", |s, out| {
        out.count(&[], s.figures.engine.sealed);
    }),
    gauge("leeward_table_runs", "Overlapping runs of tables that wait to be compacted.", |s, out| {
        out.count(&[], s.figures.engine.runs);
    }),
    counter("leeward_engine_written_bytes_total", "Bytes of metadata written: journal, flush and compaction.", |s, out| {
        out.count(&[], s.figures.engine.written_bytes);
    }),
    counter(
        "leeward_commit_slowed_seconds_total",
        "Time by which commits were delayed so that flush and compaction could keep up.",
        |s, out| out.nanos(&[], s.figures.engine.slowed_nanos),
    ),
    // caches
    histogram("leeward_record_load_seconds", "Duration of loads of records that were not in memory.", |s, out| {
        out.histogram(&[], &s.figures.record_loads);
    }),
    gauge("leeward_record_cache_bytes", "Size of the cache of records.", |s, out| {
        out.count(&[], s.figures.record_cache_bytes.0);
    }),
    gauge("leeward_record_cache_limit_bytes", "Limit of the cache of records.", |s, out| {
        out.count(&[], s.figures.record_cache_bytes.1);
    }),
    counter("leeward_cache_hits_total", "Units of file data that readers found in the cache.", |s, out| {
        out.count(&[], s.figures.cache.hits);
    }),
    counter("leeward_cache_misses_total", "Units of file data that had to be fetched from a store.", |s, out| {
        out.count(&[], s.figures.cache.misses);
    }),
    gauge("leeward_cache_bytes", "Size of the cache of file data.", |s, out| out.count(&[], s.figures.cache.bytes)),
    gauge("leeward_cache_limit_bytes", "Limit of the cache of file data.", |s, out| {
        out.count(&[], s.figures.cache.bytes_max);
    }),
    // the cache on disk
    counter("leeward_disk_cache_hits_total", "Parts of objects that readers found in the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.hits));
    }),
    counter("leeward_disk_cache_misses_total", "Parts of objects that were not in the cache on disk and came from the store.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.misses));
    }),
    counter("leeward_disk_cache_bad_total", "Parts that were damaged in the cache on disk and came from the store.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bad));
    }),
    counter("leeward_disk_cache_errors_total", "Calls of the cache's disk that failed or took too long.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.errors));
    }),
    counter("leeward_disk_cache_written_bytes_total", "Bytes written to the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.written_bytes));
    }),
    gauge("leeward_disk_cache_bytes", "Size of the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bytes));
    }),
    gauge("leeward_disk_cache_limit_bytes", "Limit of the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bytes_max));
    }),
    gauge("leeward_disk_cache_failing", "1 while the cache's disk is not used, because it failed.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| u64::from(c.resting)));
    }),
    // the store
    histogram("leeward_store_seconds", "Duration of calls of the store with their waits for a turn, failed ones included.", |s, out| {
        calls(s, |name, c| out.histogram(&[name], &c.took));
    })
    .by(&["call"]),
    counter("leeward_store_bytes_total", "Bytes put to the store and read from it.", |s, out| {
        calls(s, |name, c| out.count(&[name], c.bytes));
    })
    .by(&["call"]),
    counter(
        "leeward_store_errors_total",
        "Calls of the store that failed. A missing object does not count.",
        |s, out| calls(s, |name, c| out.count(&[name], c.errors)),
    )
    .by(&["call"]),
    gauge("leeward_store_window_bytes", "Bytes that the gates before the stores of a pool allow in flight.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.window_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_store_on_way_bytes", "Bytes in flight to and from the stores of a pool.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.on_way_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_store_queue_length", "Slices of transfers that wait for their turn at the stores of a pool.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.waiting));
    })
    .by(&["pool"]),
    counter(
        "leeward_store_waits_total",
        "Slices of transfers that had to wait for their turn at the stores of a pool, since the pool was opened.",
        |s, out| gates(s, |pool, g| out.count(&[pool], g.waits)),
    )
    .by(&["pool"]),
    counter("leeward_store_wait_seconds_total", "Time that slices of transfers waited for their turn at the stores of a pool, since the pool was opened.", |s, out| {
        gates(s, |pool, g| out.nanos(&[pool], g.waited_nanos));
    })
    .by(&["pool"]),
    counter("leeward_damaged_reads_total", "Reads of users that found damaged data in a store.", |s, out| {
        out.count(&[], s.figures.damaged_reads);
    }),
    // space
    gauge("leeward_space_bytes", "Size of the file system that the cell is on.", |s, out| {
        out.count(&[], s.figures.df.total_bytes);
    }),
    gauge("leeward_space_available_bytes", "Bytes that users may still write.", |s, out| {
        out.count(&[], s.figures.df.available_bytes);
    }),
    gauge("leeward_segments", "Segments in the store.", |s, out| out.count(&[], s.figures.df.segments)),
    gauge("leeward_segment_bytes", "Size of the segments in the store, as stored.", |s, out| {
        out.count(&[], s.figures.df.segment_bytes);
    }),
    gauge("leeward_live_bytes", "Live bytes in the segments, before compression.", |s, out| {
        out.count(&[], s.figures.df.live_bytes);
    }),
    gauge("leeward_volumes", "Number of volumes.", |s, out| out.count(&[], s.figures.volumes)),
    gauge("leeward_quotas", "Quotas on volumes and directories, and limits of users and groups.", |s, out| out.count(&[], s.figures.quotas)),
    gauge("leeward_quotas_nearly_full", "Quotas of which less than a twentieth is left.", |s, out| {
        out.count(&[], s.figures.quotas_nearly_full);
    }),
    gauge("leeward_event_log_bytes", "Bytes of the event logs of all volumes (lee audit).", |s, out| {
        out.count(&[], s.figures.event_log_bytes);
    }),
    // shards, of which a cell has 32 at most
    gauge("leeward_shard_volumes", "Volumes in a shard.", |s, out| {
        shards(s, |shard, name| out.count(&[name], shard.volumes));
    })
    .by(&["shard"]),
    counter("leeward_shard_operations_total", "Operations of a shard.", |s, out| {
        shards(s, |shard, name| out.count(&[name], shard.operations));
    })
    .by(&["shard"]),
    counter("leeward_shard_commits_total", "Commits of a shard.", |s, out| {
        shards(s, |shard, name| out.count(&[name], shard.commits));
    })
    .by(&["shard"]),
    // pools, of which a cell has 256 at most
    gauge("leeward_pool_bytes", "Size of a pool: bytes that data can fill.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.total_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_available_bytes", "Bytes that users may still write to a pool.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.available_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stored_bytes", "Size of the segments in a pool, as stored, without the redundancy of its layout.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.object_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_away", "1 while too few stores of a pool are available to read it.", |s, out| {
        pools(s, |p| out.count(&[&p.name], u64::from(p.away.is_some())));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stores_failing", "Stores of a pool that fail, are slow, full or missing.", |s, out| {
        let failing = |h: &Health| h.stores.iter().filter(|s| s.condition != Condition::Ok).count() as u64;
        health(s, |pool, h| out.count(&[pool], failing(h)));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stores_spare", "How many more stores of a pool may fail before data is lost.", |s, out| {
        health(s, |pool, h| out.count(&[pool], h.may_lose.into()));
    })
    .by(&["pool"]),
    gauge("leeward_pool_degraded_objects", "Objects that lack pieces, and wait for repair.", |s, out| {
        health(s, |pool, h| out.count(&[pool], h.degraded_objects));
    })
    .by(&["pool"]),
    gauge("leeward_pool_lost_objects", "Objects that lack too many pieces to be read.", |s, out| {
        health(s, |pool, h| out.count(&[pool], h.lost_objects));
    })
    .by(&["pool"]),
    gauge("leeward_scrub_age_seconds", "How long ago the last whole scrub of a pool began.", |s, out| {
        pools(s, |p| p.scrub.age_secs.iter().for_each(|secs| out.count(&[&p.name], *secs as u64)));
    })
    .by(&["pool"]),
    gauge("leeward_scrub_late", "1 when the last whole scrub of a pool began longer ago than twice the interval.", |s, out| {
        pools(s, |p| out.count(&[&p.name], u64::from(p.scrub.late)));
    })
    .by(&["pool"]),
    gauge("leeward_scrub_lost_objects", "Objects of a pool that its last whole scrub found damaged.", |s, out| {
        let lost = |p: &PoolInfo| p.scrub.last.as_ref().map_or(0, |last| last.found.lost_objects);
        pools(s, |p| out.count(&[&p.name], lost(p)));
    })
    .by(&["pool"]),
    gauge("leeward_tier_used_ratio", "Used part of the hot pool in front of this one.", |s, out| {
        tiers(s, |pool, t| out.number(&[pool], t.hot_used_percent as f64 / 100.0));
    })
    .by(&["pool"]),
    gauge("leeward_tier_unflushed_bytes", "Bytes that are only on the hot pool in front of this one.", |s, out| {
        tiers(s, |pool, t| out.count(&[pool], t.unflushed_bytes));
    })
    .by(&["pool"]),
    counter("leeward_tier_flushed_bytes_total", "Bytes copied from the hot pool in front of this one.", |s, out| {
        tiers(s, |pool, t| out.count(&[pool], t.flushed_bytes));
    })
    .by(&["pool"]),
    gauge(
        "leeward_tier_pressure_ratio",
        "The part of their writes that writers have to flush themselves. At 1 they write at the speed of this pool.",
        |s, out| tiers(s, |pool, t| out.number(&[pool], t.pressure_percent as f64 / 100.0)),
    )
    .by(&["pool"]),
    // backlog
    gauge("leeward_reclaimable_bytes", "Space in segments that cleaning can free.", |s, out| {
        out.count(&[], s.figures.df.reclaim_bytes);
    }),
    gauge("leeward_cleaning_segments", "Segments that are worth cleaning.", |s, out| {
        out.count(&[], s.figures.stats.cleaning_segments);
    }),
    counter("leeward_cleaned_segments_total", "Segments that were cleaned.", |s, out| {
        out.count(&[], s.figures.cleaned_segments);
    }),
    gauge("leeward_unreadable_records", "Damaged records that trim and recycle bins skip: run `lee fsck`.", |s, out| {
        out.count(&[], s.figures.unreadable_records);
    }),
    gauge("leeward_trim_records", "Records of removed snapshots that wait to be freed.", |s, out| {
        out.count(&[], s.figures.stats.trim_records);
    }),
    gauge("leeward_trim_bytes", "File data of removed snapshots that waits to be freed.", |s, out| {
        out.count(&[], s.figures.trim_bytes);
    }),
    gauge("leeward_volumes_removing", "Removed volumes that are being freed.", |s, out| {
        out.count(&[], s.figures.volumes_removing);
    }),
    // snapshots
    gauge("leeward_snapshots", "Number of snapshots.", |s, out| out.count(&[], s.figures.stats.snapshots)),
    gauge("leeward_snapshot_held_bytes", "File data that only snapshots hold.", |s, out| {
        out.count(&[], s.figures.snapshot_held_bytes);
    }),
    gauge("leeward_late_schedules", "Snapshot schedules that are late.", |s, out| {
        out.count(&[], s.figures.stats.late_schedules);
    }),
    gauge("leeward_mirrors", "Copies in other cells that are kept up to date.", |s, out| {
        out.count(&[], s.mirrors.len() as u64);
    }),
    gauge("leeward_mirrors_bad", "Of those, how many are late, fail, or were promoted: see `lee mirror status`.", |s, out| {
        out.count(&[], s.mirrors.iter().filter(|mirror| mirror.is_bad()).count() as u64);
    }),
    gauge("leeward_mirror_age_seconds", "Age of the newest proven snapshot of a copy; of the oldest ones.", |s, out| {
        let mut ages: Vec<_> = s.mirrors.iter().filter_map(|m| Some((m.age_secs?, &m.mirror))).collect();
        ages.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        for (age, mirror) in ages.into_iter().take(MIRRORS_SHOWN) {
            out.number(&[&mirror.volume, &mirror.to], age as f64);
        }
    })
    .by(&["volume", "to"]),
    gauge("leeward_mirror_backlog_changes", "Records and pieces of data that a copy lacks: what has changed since its newest proven snapshot.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.backlog.changes);
    })
    .by(&["volume", "to"]),
    gauge("leeward_mirror_backlog_snapshots", "Snapshots that a mirror has taken and not sent to their end.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.backlog.snapshots);
    })
    .by(&["volume", "to"]),
    gauge("leeward_mirror_left_seconds", "Time that a pass at work still needs, at its rate so far; 0: none is at work, or it is not known yet.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.left_secs.unwrap_or(0));
    })
    .by(&["volume", "to"]),
    counter("leeward_mirror_passes_total", "Passes that brought a copy up to date.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.passes);
    })
    .by(&["volume", "to"]),
    counter("leeward_mirror_failed_passes_total", "Passes of a mirror that failed.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.failed_passes);
    })
    .by(&["volume", "to"]),
    counter("leeward_mirror_sent_bytes_total", "Bytes that the passes of a mirror have sent.", |s, out| {
        of_mirrors(s, out, |mirror| mirror.total_bytes);
    })
    .by(&["volume", "to"]),
    gauge("leeward_copies", "Copies of volumes of other cells that are here.", |s, out| {
        out.count(&[], s.copies.iter().filter(|copy| copy.age_secs.is_some()).count() as u64);
    }),
    gauge("leeward_copies_late", "Of those, how many are older than twice their interval and a minute: see `lee mirror status`.", |s, out| {
        out.count(&[], s.copies.iter().filter(|copy| copy.late).count() as u64);
    }),
    gauge("leeward_copy_age_seconds", "Age of what a copy here shows, which is whole and proven; of the oldest ones.", |s, out| {
        let mut ages: Vec<_> = s.copies.iter().filter_map(|copy| Some((copy.age_secs?, &copy.volume))).collect();
        ages.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        for (age, volume) in ages.into_iter().take(MIRRORS_SHOWN) {
            out.number(&[volume], age as f64);
        }
    })
    .by(&["volume"]),
    gauge("leeward_backups", "Backups of volumes to cold stores.", |s, out| {
        out.count(&[], s.backups.len() as u64);
    }),
    gauge("leeward_backups_bad", "Of those, how many are late or fail, or cannot be restored for sure: see `lee backup list`.", |s, out| {
        out.count(&[], s.backups.iter().filter(|backup| backup.is_bad()).count() as u64);
    }),
    gauge("leeward_backup_age_seconds", "Age of the last backup of a volume; of the oldest ones.", |s, out| {
        let mut ages: Vec<_> = s.backups.iter().filter_map(|b| Some((b.age_secs?, &b.backup))).collect();
        ages.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        for (age, backup) in ages.into_iter().take(MIRRORS_SHOWN) {
            out.number(&[&backup.volume, &backup.to], age as f64);
        }
    })
    .by(&["volume", "to"]),
    gauge("leeward_backup_test_age_seconds", "Age of the last test of a backup of a volume; of the oldest ones.", |s, out| {
        let mut ages: Vec<_> = s.backups.iter().filter_map(|b| Some((b.test_age_secs?, &b.backup))).collect();
        ages.sort_by_key(|(age, _)| std::cmp::Reverse(*age));
        for (age, backup) in ages.into_iter().take(MIRRORS_SHOWN) {
            out.number(&[&backup.volume, &backup.to], age as f64);
        }
    })
    .by(&["volume", "to"]),
    gauge(
        "leeward_clock_ahead_seconds",
        "While a snapshot is locked: time by which the clock was set forward (below zero: back) since the start.",
        |s, out| out.number(&[], s.figures.stats.clock_ahead_secs as f64),
    ),
    // the process
    gauge("leeward_build_info", "Always 1; the version of the program.", |_, out| {
        out.count(&[env!("CARGO_PKG_VERSION")], 1);
    })
    .by(&["version"]),
    gauge("leeward_start_time_seconds", "Time when the process began to serve, since 1970.", |s, out| {
        out.number(&[], s.since as f64);
    }),
    counter("leeward_process_cpu_seconds_total", "Processor time of the process.", |s, out| {
        out.number(&[], s.process.cpu_secs);
    }),
    gauge("leeward_process_resident_bytes", "Memory of the process.", |s, out| {
        out.count(&[], s.process.resident_bytes);
    }),
    gauge("leeward_process_threads", "Threads of the process.", |s, out| out.count(&[], s.process.threads)),
    gauge("leeward_process_descriptors", "Open descriptors of the process.", |s, out| {
        out.count(&[], s.process.descriptors);
    }),
    gauge("leeward_scrape_seconds", "Time that it took to collect these values.", |s, out| {
        out.nanos(&[], s.took_nanos);
    }),
];

fn calls(s: &Scrape, mut each: impl FnMut(&str, &CallFigures)) {
    let store = &s.figures.store;
    each("put", &store.put);
    each("get", &store.get);
    each("delete", &store.delete);
}

fn gates(s: &Scrape, mut each: impl FnMut(&str, &GateFigures)) {
    s.figures.gates.iter().for_each(|(pool, gate)| each(pool, gate));
}

fn shards(s: &Scrape, mut each: impl FnMut(&ShardInfo, &str)) {
    s.figures.shards.iter().for_each(|shard| each(shard, &shard.shard.to_string()));
}

fn pools(s: &Scrape, each: impl FnMut(&PoolInfo)) {
    s.figures.df.pools.iter().for_each(each);
}

fn health(s: &Scrape, mut each: impl FnMut(&str, &Health)) {
    pools(s, |pool| pool.health.iter().for_each(|health| each(&pool.name, health)));
}

fn tiers(s: &Scrape, mut each: impl FnMut(&str, &TierHealth)) {
    health(s, |pool, health| health.tier.iter().for_each(|tier| each(pool, tier)));
}
