//! Which processors a thread may run on.
//!
//! A thread of a ring is bound to the processor whose requests it serves, and a thread that it
//! starts would be, too. So threads that start on demand take over what holds for the process.

/// Binds this thread to a processor, where that is allowed.
pub fn bind_to(cpu: usize) {
    if cpu >= libc::CPU_SETSIZE as usize {
        return;
    }
    // SAFETY: a set for which all zeros are valid, and a number that fits in it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

/// Lets this thread run where the process's first thread may, which nobody binds.
pub fn as_the_process() {
    // SAFETY: a set for which all zeros are valid; the calls write and read no more than its size.
    unsafe {
        let (mut set, bytes): (libc::cpu_set_t, _) = (std::mem::zeroed(), size_of::<libc::cpu_set_t>());
        if libc::sched_getaffinity(libc::getpid(), bytes, &raw mut set) == 0 {
            libc::sched_setaffinity(0, bytes, &raw const set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count() -> i32 {
        // SAFETY: as above.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
            libc::CPU_COUNT(&set)
        }
    }

    #[test]
    fn who_is_started_by_a_bound_thread_is_not_bound() {
        let all = count();
        let bound = std::thread::scope(|s| {
            let thread = s.spawn(|| {
                bind_to(0);
                let child = |free: fn()| std::thread::scope(|s| s.spawn(|| (free(), count()).1).join());
                (count(), child(|| ()).unwrap_or(0), child(as_the_process).unwrap_or(0))
            });
            thread.join().unwrap_or_default()
        });
        assert_eq!(bound, (1, 1, all));
    }
}
