//! Labels tell stores apart.

use leeward_env::{Ctx, Env};
use leeward_pool::contract::{body, id};
use leeward_pool::label::{self, LABEL, Label, LabelError};
use leeward_pool::{AlignedBuf, Chance, FaultyStore, MemStore, Store, StoreFault};
use std::sync::Arc;

fn label() -> Label {
    Label {
        cell: "53d8c6e75f553823335350d20a7fb413".into(),
        pool: 4,
        slot: 2,
        store: "000102030405060708090a0b0c0d0e0f".into(),
    }
}

/// The bytes of a label, for ever.
#[test]
fn golden() {
    let block = label().encode().unwrap();
    let hex: String = block[..64].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(
        hex,
        "6c65652d6c61626c0100020004000000\
         53d8c6e75f553823335350d20a7fb413\
         000102030405060708090a0b0c0d0e0f\
         000000000000000000000000c53e11e7"
    );
    assert!(block.len() == 4096 && block[64..].iter().all(|b| *b == 0));
    assert_eq!(Label::decode(block.first_chunk().unwrap()).unwrap(), label());
}

#[test]
fn a_store_is_labelled_once() {
    let ctx = Ctx::system();
    let store = MemStore::with_capacity(1 << 20);
    assert!(matches!(label::check(&ctx, &store, &label()), Err(LabelError::Empty)));
    let small = label::write(&ctx, &store, &label(), 2 << 20);
    assert!(matches!(small, Err(LabelError::TooSmall { have: 0x10_0000, need: 0x20_0000 })));
    label::write(&ctx, &store, &label(), 1 << 20).unwrap();
    label::write(&ctx, &store, &label(), 0).unwrap();
    label::check(&ctx, &store, &label()).unwrap();
    assert_eq!(label::read(&ctx, &store).unwrap(), Some(label()));
    let other = Label { pool: 5, ..label() };
    assert!(matches!(label::write(&ctx, &store, &other, 0), Err(LabelError::OtherPool { .. })));
    label::remove(&ctx, &store).unwrap();
    label::write(&ctx, &store, &other, 0).unwrap();
}

#[test]
fn other_stores_are_told_apart() {
    let ctx = Ctx::system();
    let store = MemStore::new();
    label::write(&ctx, &store, &label(), 0).unwrap();
    let told = |wanted: Label| label::check(&ctx, &store, &wanted).unwrap_err().to_string();
    assert!(told(Label { cell: "00".repeat(16), ..label() }).contains("another cell: 53d8c6"));
    assert!(told(Label { pool: 9, ..label() }).contains("pool 4 of this cell, not to pool 9"));
    assert!(told(Label { slot: 3, store: "ff".repeat(16), ..label() }).contains("swapped"));
    assert!(told(Label { store: "ff".repeat(16), ..label() }).contains("replaced"));
    let unlabelled = MemStore::new();
    unlabelled.put(&ctx, id(1, 0), &body(1, 4096)).unwrap();
    let error = label::write(&ctx, &unlabelled, &label(), 0).unwrap_err();
    assert!(matches!(error, LabelError::Unlabelled { objects: 1 }), "{error}");
    assert!(matches!(Label { store: "x".into(), ..label() }.encode(), Err(LabelError::Id(_))));
}

#[test]
fn damaged_and_newer_labels_are_refused() {
    let ctx = Ctx::system();
    let store = MemStore::new();
    for bit in 0..64 * 8 {
        let mut block = label().encode().unwrap();
        block[bit / 8] ^= 1 << (bit % 8);
        store.put(&ctx, LABEL, &block).unwrap();
        let found = label::check(&ctx, &store, &label());
        assert!(matches!(found, Err(LabelError::Damaged | LabelError::Newer(_))), "bit {bit}: {found:?}");
    }
    let faulty = FaultyStore::new(Arc::new(MemStore::new()));
    faulty.set(StoreFault::GetFails, Chance::PerMille(1000));
    assert!(matches!(label::check(&ctx, &faulty, &label()), Err(LabelError::Store(_))));
}

#[test]
fn pools_do_not_list_labels() {
    let ctx = Ctx::system();
    for layout in ["single", "replica(2)", "erasure(2+1)"] {
        let layout: leeward_pool::Layout = layout.parse().unwrap();
        let stores: Vec<Arc<MemStore>> = (0..layout.pieces()).map(|_| Arc::default()).collect();
        let store = |slot: u16| leeward_pool::StoreSpec {
            slot,
            id: format!("{slot:032x}"),
            url: String::new(),
            state: leeward_pool::StoreState::Active,
        };
        let spec = leeward_pool::PoolSpec {
            id: 4,
            name: "p".into(),
            layout,
            stores: (0..layout.pieces() as u16).map(store).collect(),
        };
        for (slot, store) in stores.iter().enumerate() {
            label::write(&ctx, &**store, &Label { slot: slot as u16, ..label() }, 0).unwrap();
        }
        let members = stores.iter().map(|store| leeward_pool::Member::Open(store.clone())).collect();
        let pool =
            leeward_pool::assemble(&Env::sim(1), &Arc::default(), &spec, members, |_, _| true).unwrap();
        assert_eq!(pool.list(&ctx).unwrap(), []);
        while pool.repair_step(&ctx).unwrap().more {}
        while pool.scrub().is_some_and(|scrub| scrub.step(&ctx).unwrap().more) {}
        assert_eq!(pool.health().degraded_objects + pool.health().lost_objects, 0);
        pool.put(&ctx, id(1, 0), &AlignedBuf::zeroed(4096)).unwrap();
        assert_eq!(pool.list(&ctx).unwrap().len(), 1);
    }
}
