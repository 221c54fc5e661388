//! The jobs of one user (in one class): the inner level of the queue. They share equally what the
//! user gets.
//!
//! A user has few jobs at a time, so they are searched one by one.

use std::collections::VecDeque;

/// Expected cost of the first turn of a job, nanoseconds: an operation on records in memory.
/// Corrected by the real cost of turns.
const FIRST_COST: u64 = 20_000;

/// Above this many jobs, quiet ones are dropped although they are ahead: a user may make a new job
/// for each request.
const JOBS_MAX: usize = 64;

/// Jobs with work waiting or running, or that are ahead of the user's others.
pub(crate) struct Jobs<T> {
    jobs: Vec<Job<T>>,
    /// Start of the turn that was given last: virtual time that each job may have used until now.
    now: u64,
    waiting: usize,
}

struct Job<T> {
    id: u32,
    items: VecDeque<T>,
    /// What the job has used, nanoseconds; where its next turn starts.
    start: u64,
    /// Arrival of the first item that waits.
    arrival: u64,
    running: usize,
    /// Recent cost of a turn, nanoseconds.
    usual_cost: u64,
}

impl<T> Default for Jobs<T> {
    fn default() -> Jobs<T> {
        Jobs { jobs: Vec::new(), now: 0, waiting: 0 }
    }
}

impl<T> Jobs<T> {
    /// Items that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Jobs that are remembered.
    pub(crate) fn count(&self) -> usize {
        self.jobs.len()
    }

    /// Jobs with items that wait, and how many of them.
    pub(crate) fn backlog(&self) -> impl Iterator<Item = (u32, usize)> + '_ {
        self.jobs.iter().filter(|j| !j.items.is_empty()).map(|j| (j.id, j.items.len()))
    }

    /// Adds an item at the end of the job's line.
    pub(crate) fn push(&mut self, id: u32, arrival: u64, item: T) {
        let now = self.now;
        let job = self.job(id);
        if job.items.is_empty() {
            // time that a quiet job did not use is lost
            job.start = job.start.max(now);
            job.arrival = arrival;
        }
        job.items.push_back(item);
        self.waiting += 1;
    }

    /// Begins a turn of a job without an item; returns its expected cost.
    pub(crate) fn pass(&mut self, id: u32) -> u64 {
        let (now, alone) = (self.now, self.waiting == 0);
        let job = self.job(id);
        job.start = job.start.max(now);
        let start = job.start;
        let charged = job.begin();
        if alone {
            self.now = start;
            self.forget_passed();
        }
        charged
    }

    /// The item that [`Jobs::pop`] would give now.
    pub(crate) fn peek(&self) -> Option<&T> {
        let waiting = self.jobs.iter().filter(|j| !j.items.is_empty());
        waiting.min_by_key(|j| (j.start, j.arrival))?.items.front()
    }

    /// Begins the next turn. Returns the job, the expected cost of the turn, and the item.
    /// `arrival` is for the item after it.
    pub(crate) fn pop(&mut self, arrival: u64) -> Option<(u32, u64, T)> {
        let waiting = self.jobs.iter_mut().filter(|j| !j.items.is_empty());
        let job = waiting.min_by_key(|j| (j.start, j.arrival))?;
        let item = job.items.pop_front()?;
        job.arrival = arrival;
        let (id, start) = (job.id, job.start);
        let charged = job.begin();
        self.waiting -= 1;
        self.now = self.now.max(start);
        self.forget_passed();
        Some((id, charged, item))
    }

    /// A turn has ended: corrects the charged cost.
    pub(crate) fn done(&mut self, id: u32, charged: u64, cost: u64) {
        if let Some(job) = self.jobs.iter_mut().find(|j| j.id == id) {
            job.running -= 1;
            job.usual_cost = (job.usual_cost * 7 + cost) / 8;
            job.start = (job.start + cost).saturating_sub(charged);
        }
    }

    fn job(&mut self, id: u32) -> &mut Job<T> {
        let known = self.jobs.iter().position(|j| j.id == id);
        let n = known.unwrap_or_else(|| {
            self.jobs.push(Job::new(id, self.now));
            self.jobs.len() - 1
        });
        &mut self.jobs[n]
    }

    fn forget_passed(&mut self) {
        if self.jobs.len() > 1 {
            let (now, few) = (self.now, self.jobs.len() <= JOBS_MAX);
            self.jobs.retain(|j| !j.items.is_empty() || j.running > 0 || (few && j.start > now));
        }
    }
}

impl<T> Job<T> {
    fn new(id: u32, start: u64) -> Job<T> {
        Job { id, items: VecDeque::new(), start, arrival: 0, running: 0, usual_cost: FIRST_COST }
    }

    fn begin(&mut self) -> u64 {
        self.running += 1;
        self.start += self.usual_cost;
        self.usual_cost
    }
}
