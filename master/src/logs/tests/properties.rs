//! Whatever a worker sends in whatever order, with whatever failures: what is kept is the start of what was
//! printed, and nothing that was acknowledged is lost.

use proptest::prelude::*;

use super::{
    faults::{Fault, Faulty},
    *,
};

#[derive(Debug, Clone)]
enum Move {
    /// The next bytes.
    Send(usize),
    /// So many bytes back, then so many forth.
    Repeat { back: u64, length: usize },
    /// Bytes that begin too far ahead.
    Skip(u64),
    /// The put goes wrong, and the worker asks anew.
    Broken { length: usize, fault: Fault },
    /// Another master: nothing is remembered.
    Restart,
}

fn lengths() -> impl Strategy<Value = usize> {
    prop_oneof![
        4 => 1..200_usize,
        2 => 30_000..70_000_usize,
        1 => Just(MAX_CHUNK),
    ]
}

fn moves() -> impl Strategy<Value = Move> {
    let fault = prop_oneof![Just(Fault::Fails), Just(Fault::LosesAnswer)];
    prop_oneof![
        6 => lengths().prop_map(Move::Send),
        2 => (1..100_000_u64, lengths()).prop_map(|(back, length)| Move::Repeat { back, length }),
        1 => (1..1000_u64).prop_map(Move::Skip),
        2 => (lengths(), fault).prop_map(|(length, fault)| Move::Broken { length, fault }),
        1 => Just(Move::Restart),
    ]
}

async fn check(moves: Vec<Move>, limit: u64) {
    let objects = Arc::new(Faulty::default());
    let store = LogStore::new(objects.clone(), limit);
    let key = key(1, 1);
    let mut extent = store.open(key).await.unwrap();
    let mut acknowledged = 0;
    let mut n_printed = 0;
    for step in moves {
        let kept = extent.kept();
        // What the worker sends is what was printed at that place.
        let (offset, length) = match step {
            Move::Send(length) | Move::Broken { length, .. } => (kept, length),
            Move::Repeat { back, length } => (kept.saturating_sub(back), length),
            Move::Skip(ahead) => (kept + ahead, 1),
            Move::Restart => {
                extent = store.open(key).await.unwrap();
                assert!(extent.kept() >= acknowledged);
                continue;
            }
        };
        if let Move::Broken { fault, .. } = step {
            objects.next(Some(fault));
        }
        let sent = store
            .append(key, &mut extent, offset, sample(offset, length))
            .await;
        objects.heal();
        match (sent, step) {
            (Ok(()), _) => {
                acknowledged = acknowledged.max(extent.kept());
                n_printed = n_printed.max(offset + length as u64);
            }
            (Err(Error::Gap { .. }), Move::Skip(_)) => {}
            (Err(Error::Unavailable { .. }), Move::Broken { .. }) => {
                n_printed = n_printed.max(offset + length as u64);
                extent = store.open(key).await.unwrap();
                assert!(extent.kept() >= acknowledged);
            }
            (Err(error), step) => panic!("{step:?}: {error}"),
        }
        assert_eq!(store.extent(key).await.unwrap(), extent);
    }
    let read = read_from(&store, key, 0).await;
    let kept = extent.kept();
    assert!(kept >= acknowledged && kept <= limit);
    assert_eq!(extent.is_cut(), read.len() as u64 > kept);
    if extent.is_cut() {
        assert!(n_printed > limit);
    }
    assert_eq!(read[..kept as usize], sample(0, kept as usize));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_kept_is_what_was_printed(
        moves in proptest::collection::vec(moves(), 1..30),
        limit in prop_oneof![Just(200_000_u64), Just(1024 * 1024 * 1024)],
    ) {
        tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap()
            .block_on(check(moves, limit));
    }
}
