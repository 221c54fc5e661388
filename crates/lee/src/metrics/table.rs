//! All metrics there are. `docs/METRICS.md` is made of this table, too.
//!
//! Names end in their unit (`_seconds`, `_bytes`), those of counters in `_total`. Labels have few values: kinds of operations, classes,
//! causes, calls; volumes and users are bounded by `busiest`.

use super::Scrape;
use super::text::Lines;
use leeward_door::listen::{Family, Figures, OfPair};
use leeward_env::waits::Cause;
use leeward_volume::admin::PoolInfo;
use leeward_volume::{CallFigures, Condition, GateFigures, Health, TierHealth};

/// What a metric is to Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows while the process runs.
    Counter,
    /// As of now.
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
    /// What it is, in a sentence.
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
        "The same by volume; \"snapshots\" is all that is read in snapshots, \"other\" the volumes that are less busy.",
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
    // doors
    gauge("leeward_door_connections", "Connections to a door that are open, by address family.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.open(f)));
    })
    .by(&["door", "family"]),
    counter("leeward_door_connections_total", "Connections to a door so far.", |s, out| {
        for_families(s, |d, f, labels| out.count(labels, d.accepted(f)));
    })
    .by(&["door", "family"]),
    counter(
        "leeward_door_requests_total",
        "Requests at a door, by the class of the answer's status; 499 counts as 4xx: the client went away.",
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
    gauge("leeward_door_uploads", "Uploads in parts that are begun and not ended.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.unfinished().uploads));
    })
    .by(&["door"]),
    gauge("leeward_door_upload_bytes", "Bytes in parts of uploads that are not ended.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.unfinished().bytes));
    })
    .by(&["door"]),
    counter("leeward_door_refused_connections_total", "Connections that were refused as there were too many.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.refused()));
    })
    .by(&["door"]),
    counter("leeward_door_timeouts_total", "Connections that were cut off as the client took too long.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.timed_out()));
    })
    .by(&["door"]),
    counter("leeward_door_handshake_failures_total", "Handshakes of TLS that came to nothing.", |s, out| {
        s.doors.iter().for_each(|d| out.count(&[d.door().name()], d.handshakes_failed()));
    })
    .by(&["door"]),
    counter(
        "leeward_door_user_requests_total",
        "Requests by user and bucket (none at the HTTP door), those that came late together as \"other\".",
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
    counter("leeward_wait_seconds_total", "What operations of a user (by number) waited, by cause.", |s, out| {
        for (user, counts) in &s.users {
            Cause::ALL.iter().zip(counts).for_each(|(cause, nanos)| out.nanos(&[user, cause.name()], *nanos));
        }
    })
    .by(&["user", "cause"]),
    counter(
        "leeward_waited_behind_seconds_total",
        "What operations of all users waited behind this one (by number), where it is known behind whom.",
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
    histogram("leeward_commit_seconds", "How long commits of metadata took, also those that failed.", |s, out| {
        out.histogram(&[], &s.figures.commits);
    }),
    counter("leeward_commit_errors_total", "Commits that failed; they are tried again when the disk was full.", |s, out| {
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
    gauge("leeward_orphans", "Files that are removed and still open.", |s, out| {
        out.count(&[], s.figures.stats.orphans);
    }),
    // the metadata engine
    gauge("leeward_journal_bytes", "Journal of the metadata on disk.", |s, out| {
        out.count(&[], s.figures.engine.journal_bytes);
    }),
    gauge("leeward_journal_usual_bytes", "A journal of more bytes is out of the ordinary; 0: the cell has no journal.", |s, out| {
        out.count(&[], s.figures.engine.journal_bytes_usual);
    }),
    gauge("leeward_table_bytes", "Tables of the metadata on disk.", |s, out| {
        out.count(&[], s.figures.engine.table_bytes);
    }),
    gauge("leeward_memtable_bytes", "Metadata in memory that waits to be flushed to tables; the journal has it.", |s, out| {
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
        "Time for which commits were held up so that flush and compaction could follow.",
        |s, out| out.nanos(&[], s.figures.engine.slowed_nanos),
    ),
    // caches
    histogram("leeward_record_load_seconds", "How long records were loaded that were not in memory.", |s, out| {
        out.histogram(&[], &s.figures.record_loads);
    }),
    gauge("leeward_record_cache_bytes", "Records in memory.", |s, out| {
        out.count(&[], s.figures.record_cache_bytes.0);
    }),
    gauge("leeward_record_cache_limit_bytes", "Most records in memory.", |s, out| {
        out.count(&[], s.figures.record_cache_bytes.1);
    }),
    counter("leeward_cache_hits_total", "Pieces of file data that were wanted and in the cache.", |s, out| {
        out.count(&[], s.figures.cache.hits);
    }),
    counter("leeward_cache_misses_total", "Pieces of file data that were wanted and fetched from a store.", |s, out| {
        out.count(&[], s.figures.cache.misses);
    }),
    gauge("leeward_cache_bytes", "The cache of file data.", |s, out| out.count(&[], s.figures.cache.bytes)),
    gauge("leeward_cache_limit_bytes", "Most bytes in the cache of file data.", |s, out| {
        out.count(&[], s.figures.cache.bytes_max);
    }),
    // the cache on disk
    counter("leeward_disk_cache_hits_total", "Parts of objects that were wanted and in the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.hits));
    }),
    counter("leeward_disk_cache_misses_total", "Parts of objects that were wanted and not there; the store was asked.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.misses));
    }),
    counter("leeward_disk_cache_bad_total", "Parts that were there and damaged; the store was asked.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bad));
    }),
    counter("leeward_disk_cache_errors_total", "Calls of the cache's disk that failed or took too long.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.errors));
    }),
    counter("leeward_disk_cache_written_bytes_total", "Bytes written to the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.written_bytes));
    }),
    gauge("leeward_disk_cache_bytes", "The cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bytes));
    }),
    gauge("leeward_disk_cache_limit_bytes", "Most bytes in the cache on disk.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| c.bytes_max));
    }),
    gauge("leeward_disk_cache_failing", "1 while the cache's disk is left alone, because it failed.", |s, out| {
        out.count(&[], s.figures.disk_cache.map_or(0, |c| u64::from(c.resting)));
    }),
    // the store
    histogram("leeward_store_seconds", "How long calls of the store took with their waits for a turn, also those that failed.", |s, out| {
        calls(s, |name, c| out.histogram(&[name], &c.took));
    })
    .by(&["call"]),
    counter("leeward_store_bytes_total", "Bytes put to the store and got from it.", |s, out| {
        calls(s, |name, c| out.count(&[name], c.bytes));
    })
    .by(&["call"]),
    counter(
        "leeward_store_errors_total",
        "Calls of the store that failed; an object that is missing is not counted here.",
        |s, out| calls(s, |name, c| out.count(&[name], c.errors)),
    )
    .by(&["call"]),
    gauge("leeward_store_window_bytes", "What the gates before the stores of a pool let be on its way at once.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.window_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_store_on_way_bytes", "What is on its way to the stores of a pool or from them.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.on_way_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_store_queue_length", "Slices of transfers that wait for their turn at the stores of a pool.", |s, out| {
        gates(s, |pool, g| out.count(&[pool], g.waiting));
    })
    .by(&["pool"]),
    counter(
        "leeward_store_waits_total",
        "Slices of transfers that had to wait for their turn at the stores of a pool, since it was opened.",
        |s, out| gates(s, |pool, g| out.count(&[pool], g.waits)),
    )
    .by(&["pool"]),
    counter("leeward_store_wait_seconds_total", "How long they waited.", |s, out| {
        gates(s, |pool, g| out.nanos(&[pool], g.waited_nanos));
    })
    .by(&["pool"]),
    counter("leeward_damaged_reads_total", "Reads of users that found stored data damaged.", |s, out| {
        out.count(&[], s.figures.damaged_reads);
    }),
    // space
    gauge("leeward_space_bytes", "Size of the file system that the cell is on.", |s, out| {
        out.count(&[], s.figures.df.total_bytes);
    }),
    gauge("leeward_space_available_bytes", "What users may still write.", |s, out| {
        out.count(&[], s.figures.df.available_bytes);
    }),
    gauge("leeward_segments", "Segments in the store.", |s, out| out.count(&[], s.figures.df.segments)),
    gauge("leeward_segment_bytes", "Segments in the store, as stored.", |s, out| {
        out.count(&[], s.figures.df.segment_bytes);
    }),
    gauge("leeward_live_bytes", "What is needed of them, before compression.", |s, out| {
        out.count(&[], s.figures.df.live_bytes);
    }),
    gauge("leeward_volumes", "Volumes.", |s, out| out.count(&[], s.figures.volumes)),
    gauge("leeward_quotas", "Quotas on volumes and directories.", |s, out| out.count(&[], s.figures.quotas)),
    gauge("leeward_quotas_nearly_full", "Quotas of which less than a twentieth is left.", |s, out| {
        out.count(&[], s.figures.quotas_nearly_full);
    }),
    // pools, of which a cell has 256 at most
    gauge("leeward_pool_bytes", "Size of a pool: what data can fill.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.total_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_available_bytes", "What users may still write to a pool.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.available_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stored_bytes", "Segments in a pool, as stored, without what its layout adds.", |s, out| {
        pools(s, |p| out.count(&[&p.name], p.object_bytes));
    })
    .by(&["pool"]),
    gauge("leeward_pool_away", "1 while too few stores of a pool are there to read it.", |s, out| {
        pools(s, |p| out.count(&[&p.name], u64::from(p.away.is_some())));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stores_failing", "Stores of a pool that fail, are slow, full or missing.", |s, out| {
        let failing = |h: &Health| h.stores.iter().filter(|s| s.condition != Condition::Ok).count() as u64;
        health(s, |pool, h| out.count(&[pool], failing(h)));
    })
    .by(&["pool"]),
    gauge("leeward_pool_stores_spare", "How many more stores of a pool may be lost before data is.", |s, out| {
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
    gauge("leeward_scrub_late", "1 when that is more than twice the interval that was asked for.", |s, out| {
        pools(s, |p| out.count(&[&p.name], u64::from(p.scrub.late)));
    })
    .by(&["pool"]),
    gauge("leeward_scrub_lost_objects", "Objects of a pool that its last whole scrub found damaged.", |s, out| {
        let lost = |p: &PoolInfo| p.scrub.last.as_ref().map_or(0, |last| last.found.lost_objects);
        pools(s, |p| out.count(&[&p.name], lost(p)));
    })
    .by(&["pool"]),
    gauge("leeward_tier_used_ratio", "How full the hot pool in front of this one is.", |s, out| {
        tiers(s, |pool, t| out.number(&[pool], t.hot_used_percent as f64 / 100.0));
    })
    .by(&["pool"]),
    gauge("leeward_tier_unflushed_bytes", "What is on the hot pool in front of this one only.", |s, out| {
        tiers(s, |pool, t| out.count(&[pool], t.unflushed_bytes));
    })
    .by(&["pool"]),
    counter("leeward_tier_flushed_bytes_total", "Bytes copied from the hot pool in front of this one.", |s, out| {
        tiers(s, |pool, t| out.count(&[pool], t.flushed_bytes));
    })
    .by(&["pool"]),
    gauge(
        "leeward_tier_pressure_ratio",
        "Which part of what they write its writers have to flush themselves: at 1 they write at the speed of this pool.",
        |s, out| tiers(s, |pool, t| out.number(&[pool], t.pressure_percent as f64 / 100.0)),
    )
    .by(&["pool"]),
    // backlog
    gauge("leeward_reclaimable_bytes", "Space in segments that cleaning can give back.", |s, out| {
        out.count(&[], s.figures.df.reclaim_bytes);
    }),
    gauge("leeward_cleaning_segments", "Segments that are worth cleaning.", |s, out| {
        out.count(&[], s.figures.stats.cleaning_segments);
    }),
    counter("leeward_cleaned_segments_total", "Segments that were cleaned.", |s, out| {
        out.count(&[], s.figures.cleaned_segments);
    }),
    gauge("leeward_unreadable_records", "Damaged records that trim and recycle bins leave out: run `lee fsck`.", |s, out| {
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
    gauge("leeward_snapshots", "Snapshots.", |s, out| out.count(&[], s.figures.stats.snapshots)),
    gauge("leeward_snapshot_held_bytes", "File data that only snapshots hold.", |s, out| {
        out.count(&[], s.figures.snapshot_held_bytes);
    }),
    gauge("leeward_late_schedules", "Schedules of snapshots that are late.", |s, out| {
        out.count(&[], s.figures.stats.late_schedules);
    }),
    gauge(
        "leeward_clock_ahead_seconds",
        "While a snapshot is locked: by how much the clock was set forward (below zero: back) since the start.",
        |s, out| out.number(&[], s.figures.stats.clock_ahead_secs as f64),
    ),
    // the process
    gauge("leeward_build_info", "Always 1; the version of the program.", |_, out| {
        out.count(&[env!("CARGO_PKG_VERSION")], 1);
    })
    .by(&["version"]),
    gauge("leeward_start_time_seconds", "When the process began to serve, since 1970.", |s, out| {
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
    gauge("leeward_scrape_seconds", "How long it took to collect these values.", |s, out| {
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

fn pools(s: &Scrape, each: impl FnMut(&PoolInfo)) {
    s.figures.df.pools.iter().for_each(each);
}

fn health(s: &Scrape, mut each: impl FnMut(&str, &Health)) {
    pools(s, |pool| pool.health.iter().for_each(|health| each(&pool.name, health)));
}

fn tiers(s: &Scrape, mut each: impl FnMut(&str, &TierHealth)) {
    health(s, |pool, health| health.tier.iter().for_each(|tier| each(pool, tier)));
}
