//! The read barrier of a cache, after an election.

use super::*;

/// Lets the cache catch up, and says how long that took.
async fn caught_up(world: &World) -> Duration {
    let begin = Instant::now();
    world.read_barrier.run().await;
    begin.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_current_cache_costs_a_list_of_one_object() {
    let world = start(vec![Answer::Stream(vec![complete(10), bookmark(20)]), page(20, &[("a", 5)], "more")]);
    tokio::time::sleep(S).await;
    assert_eq!(caught_up(&world).await, Duration::ZERO);
    assert_eq!(world.requests(), ["watch list", "limit=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_in_progress_is_awaited_and_not_repeated() {
    let steps = vec![complete(10), Step::Wait(S + Duration::from_millis(90)), modified("a", 20)];
    let world = start(vec![Answer::Stream(steps), page(20, &[("a", 20)], "")]);
    tokio::time::sleep(S).await;
    assert_eq!(caught_up(&world).await, Duration::from_millis(100));
    assert_eq!(world.dispatched(), ["=10", "+a@20", "=20"]);
    assert_eq!(world.requests().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_lags_is_replaced_by_a_new_list() {
    let world = start(vec![
        Answer::Stream(vec![added("a", 5), complete(10)]),
        page(20, &[("a", 20)], ""),
        Answer::Stream(vec![added("a", 20), complete(21)]),
    ]);
    tokio::time::sleep(S).await;
    let took = caught_up(&world).await;
    assert!(took < S, "{took:?}");
    assert_eq!(world.dispatched(), ["+a@5", "=10", "~a@20", "=21"]);
    assert_eq!(world.requests(), ["watch list", "limit=1", "watch list"]);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_cannot_be_read_is_requested_again() {
    let world = start(vec![
        Answer::Stream(vec![complete(10)]),
        Answer::Status(500, status(500, "InternalError")),
        Answer::Page(json!({"kind": "ThingList", "metadata": {}})),
        page(10, &[], ""),
    ]);
    tokio::time::sleep(S).await;
    assert_eq!(caught_up(&world).await, Duration::from_millis(300));
    assert_eq!(world.requests(), ["watch list", "limit=1", "limit=1", "limit=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_with_an_earlier_version_is_not_awaited_for_ever() {
    let mut script = vec![Answer::Stream(vec![complete(100)]), page(120, &[], "")];
    // Lists of a server that was restored from a backup: refused for their age at first, accepted in the end.
    script.extend((0..4).map(|_| Answer::Stream(vec![complete(30)])));
    script.push(page(30, &[], ""));
    let world = start(script);
    tokio::time::sleep(S).await;
    let took = tokio::time::timeout(600 * S, caught_up(&world)).await.expect("is not stuck");
    assert_eq!(world.store.position(), 30);
    assert!(took < 40 * S, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_list_older_than_the_required_version_is_requested_again() {
    let world = start(vec![
        Answer::Stream(vec![complete(10)]),
        page(20, &[], ""),
        Answer::Stream([vec![complete(15)], bookmarks(15, 3)].concat()),
        page(20, &[], ""),
        Answer::Stream(vec![complete(20)]),
    ]);
    tokio::time::sleep(S).await;
    let took = tokio::time::timeout(600 * S, caught_up(&world)).await.expect("is not stuck");
    assert!(took < 40 * S, "{took:?}");
    assert_eq!(world.requests(), ["watch list", "limit=1", "watch list", "limit=1", "watch list"]);
}

#[tokio::test(start_paused = true)]
async fn a_slow_list_is_not_interrupted() {
    let slow = (0..5).map(|_| page(10, &[], ""));
    let mut script = vec![
        Answer::Stream(vec![complete(10)]),
        page(20, &[], ""),
        // Silent for less than it takes to be given up, again and again.
        Answer::Stream(
            (0..4).flat_map(|n| [Step::Wait(20 * S), added("a", 11 + n)]).chain([complete(20)]).collect(),
        ),
    ];
    script.extend(slow.map(|_| page(30, &[], "")));
    let world = start(script);
    tokio::time::sleep(S).await;
    let took = tokio::time::timeout(600 * S, caught_up(&world)).await.expect("is not stuck");
    assert!((80 * S..82 * S).contains(&took), "{took:?}");
    let lists = world.requests().iter().filter(|request| *request == "watch list").count();
    assert_eq!(lists, 2, "the first and the demanded one");
}

#[tokio::test(start_paused = true)]
async fn a_requested_list_does_not_wait_for_the_next_retry_of_a_watch() {
    let mut script = vec![Answer::Stream(vec![complete(10), Step::Break])];
    script.extend((0..4).map(|_| Answer::Status(500, status(500, "InternalError"))));
    script.extend([page(20, &[], ""), Answer::Stream(vec![complete(20)])]);
    let world = start(script);
    // The waits are from 0.8, 1.6, 3.2, 6.4 and 12.8 s to twice as long: the fifth is under way.
    tokio::time::sleep(Duration::from_millis(24_500)).await;
    assert_eq!(world.requests().len(), 5);
    let took = caught_up(&world).await;
    assert!(took < S, "{took:?}");
}
