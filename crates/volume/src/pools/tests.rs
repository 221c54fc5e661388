//! Stores that hang while they are opened.

use super::*;
use leeward_pool::MemStore;
use std::sync::mpsc::{Sender, channel};

/// Stores in memory; one of them hangs until the sender is dropped.
struct Hanging {
    stores: BTreeMap<String, Arc<MemStore>>,
    until: Mutex<Receiver<()>>,
}

impl Opener for Hanging {
    fn open(&self, url: &str) -> leeward_pool::Result<Arc<dyn Store>> {
        if url == "hangs" {
            let _ = self.until.lock().recv();
        }
        Ok(self.stores[url].clone())
    }
}

fn pools(names: &[&str]) -> (Pools, Sender<()>) {
    let (env, (end, until)) = (Env::real(), channel());
    let store = |name: &&str| (name.to_string(), Arc::default());
    let opener = Hanging { stores: names.iter().map(store).collect(), until: Mutex::new(until) };
    let own = Arc::new(CountedStore::new(&env, Arc::new(MemStore::new())));
    let with = (Arc::default(), &Config::default());
    (Pools::new(&env, &"0".repeat(32), own, Arc::new(opener), with), end)
}

#[test]
fn a_store_that_hangs_is_left_out() {
    let names = ["a", "b", "hangs"];
    let (pools, end) = pools(&names);
    let store = |(slot, url): (u16, &&str)| StoreRecord {
        slot,
        id: slot.into(),
        url: url.to_string(),
        state: StoreState::Active,
    };
    let stores: Vec<StoreRecord> = (0..).zip(&names).map(store).collect();
    stores[..2].iter().for_each(|store| pools.take(1, store).expect("taken"));
    let record = PoolRecord { name: "p".into(), layout: "erasure(2+1)".into(), stores, tier: None };
    let parts = Parts { id: 1, record, hot: None };
    for _ in 0..2 {
        let opened = pools.open(&parts).expect("two are enough");
        assert!(opened.missing.len() == 1 && opened.missing[0].contains("hangs"), "{:?}", opened.missing);
    }
    // it can be called again when it has answered
    drop(end);
    let answered = || pools.asked.lock().is_empty();
    while !answered() {
        pools.env.sleep(Duration::from_millis(1));
    }
    pools.take(1, &parts.record.stores[2]).expect("taken");
    assert_eq!(pools.open(&parts).expect("whole").missing, [""; 0]);
}
