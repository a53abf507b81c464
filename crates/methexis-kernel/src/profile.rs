//! Where the time of a pass goes, by kind of kernel. Off unless asked for; then a lock for each call of a kernel, which
//! costs far less than the call.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

static ON: AtomicBool = AtomicBool::new(false);
static SPENT: Mutex<BTreeMap<&'static str, Spent>> = Mutex::new(BTreeMap::new());

/// What one kind of kernel has cost.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    /// Number of calls.
    pub calls: u64,
    /// Time between begin and end, all calls together.
    pub time: Duration,
    /// Floating-point operations, where they are counted.
    pub flops: f64,
    /// Bytes of weights that were read, where they are counted.
    pub bytes: f64,
}

/// Starts counting from zero.
pub fn start() {
    SPENT.lock().unwrap_or_else(PoisonError::into_inner).clear();
    ON.store(true, Ordering::Relaxed);
}

/// Stops counting and says what was counted, by kind.
pub fn stop() -> BTreeMap<&'static str, Spent> {
    ON.store(false, Ordering::Relaxed);
    std::mem::take(&mut *SPENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Runs `work`, counting it as `kind` with the given operations and bytes of weights.
#[inline]
pub fn timed<R>(kind: &'static str, cost: impl FnOnce() -> (f64, f64), work: impl FnOnce() -> R) -> R {
    if !ON.load(Ordering::Relaxed) {
        return work();
    }
    let begin = Instant::now();
    let result = work();
    let time = begin.elapsed();
    let (flops, bytes) = cost();
    let mut spent = SPENT.lock().unwrap_or_else(PoisonError::into_inner);
    let entry = spent.entry(kind).or_default();
    entry.calls += 1;
    entry.time += time;
    entry.flops += flops;
    entry.bytes += bytes;
    result
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_what_is_asked_for_is_counted() {
        let three = || super::timed("three", || (2.0, 5.0), || 3);
        assert_eq!(three(), 3);
        super::start();
        three();
        three();
        let spent = super::stop();
        let three_spent = spent.get("three").copied().unwrap_or_default();
        assert_eq!((three_spent.calls, three_spent.flops, three_spent.bytes), (2, 4.0, 10.0));
        three();
        assert!(super::stop().is_empty());
    }
}
