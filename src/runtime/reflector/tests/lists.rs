//! Lists: as streams, in pages, too old, cut off, and requested.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_streaming_list_fills_the_store_and_continues_as_a_watch() {
    let world = start(vec![Answer::Stream(vec![
        added("b", 7),
        added("a", 5),
        Step::Wait(S),
        complete(10),
        Step::Wait(S),
        modified("a", 12),
        deleted("b", 13),
        bookmark(20),
    ])]);
    tokio::time::sleep(S / 2).await;
    assert_eq!(world.dispatched(), ["+b@7", "+a@5"]);
    assert!(!world.ready.is_ready() && !world.store.is_synced());
    assert!(world.ready.wait().await);
    assert_eq!(world.dispatched(), ["=10"]);
    tokio::time::sleep(2 * S).await;
    assert_eq!(world.dispatched(), ["~a@12", "=12", "-b@13", "=13", "=20"]);
    assert_eq!(world.requests(), ["watch list"]);
}

#[tokio::test(start_paused = true)]
async fn either_form_of_410_leads_to_a_list_that_makes_up_for_missed_deletions() {
    let event = Answer::Stream(vec![line("ERROR", status(410, "Expired"))]);
    let answer = Answer::Status(410, status(410, "Expired"));
    let ahead = json!({"status": "Failure", "reason": "Timeout", "code": 504,
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1}});
    for gone in [event, answer, Answer::Status(504, ahead)] {
        let world = start(vec![
            Answer::Stream(vec![added("a", 5), added("b", 6), complete(10), Step::Wait(2 * S), Step::End]),
            gone,
            Answer::Stream(vec![added("b", 6), added("c", 14), complete(20)]),
        ]);
        tokio::time::sleep(10 * S).await;
        assert_eq!(world.requests(), ["watch list", "watch resourceVersion=10", "watch list"]);
        assert_eq!(world.dispatched(), ["+a@5", "+b@6", "=10", "+c@14", "-a@5", "=20"]);
        assert_eq!(world.times(), [0, 2000, 2000], "the list follows at once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_answers_410_to_everything_is_called_with_growing_delays() {
    let mut script = vec![Answer::Stream(vec![complete(10), Step::Wait(2 * S), Step::End])];
    for _ in 0..50 {
        script.push(Answer::Status(410, status(410, "Gone")));
    }
    let world = start(script);
    tokio::time::sleep(300 * S).await;
    let requests = world.times().len();
    assert!((10..30).contains(&requests), "{requests} requests in five minutes");
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_listed_in_pages_after_one_attempt() {
    let world = start(vec![
        refused(),
        page(30, &[("a", 5), ("b", 6)], "two"),
        page(30, &[("c", 7)], ""),
        Answer::Stream(vec![added("d", 31), line("ERROR", status(410, "Expired"))]),
        page(40, &[("d", 31)], ""),
    ]);
    tokio::time::sleep(10 * S).await;
    assert_eq!(
        world.requests(),
        [
            "watch list",
            "limit=500",
            "limit=500&continue=two",
            "watch resourceVersion=30",
            "resourceVersion=31&resourceVersionMatch=NotOlderThan",
            "watch resourceVersion=40"
        ]
    );
    let dispatched = world.dispatched();
    assert_eq!(dispatched, ["+a@5", "+b@6", "+c@7", "=30", "+d@31", "=31", "-a@5", "-b@6", "-c@7", "=40"]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ignores_the_request_for_a_streaming_list_is_detected() {
    let world = start(vec![Answer::Stream(vec![added("a", 5)]), page(30, &[("a", 5)], "")]);
    tokio::time::sleep(29 * S).await;
    assert!(!world.ready.is_ready());
    tokio::time::sleep(2 * S).await;
    assert!(world.ready.is_ready());
    assert_eq!(world.requests(), ["watch list", "limit=500", "watch resourceVersion=30"]);
}

#[tokio::test(start_paused = true)]
async fn streaming_lists_that_are_always_cut_off_give_way_to_pages() {
    let cut = Answer::Stream(vec![added("a", 5), Step::Break]);
    let world = start(vec![cut.clone(), cut.clone(), cut, page(30, &[("a", 5)], "")]);
    tokio::time::sleep(60 * S).await;
    assert_eq!(world.requests()[3..5], ["limit=500", "watch resourceVersion=30"]);
    assert_eq!(world.dispatched(), ["+a@5", "=30"]);
}

#[tokio::test(start_paused = true)]
async fn lists_are_streamed_again_some_time_after_the_last_streams_were_cut_off() {
    let cut = Answer::Stream(vec![added("a", 5), Step::Break]);
    let [first, second] = [30, 31].map(|version| page(version, &[("a", 5)], ""));
    let world = start(vec![cut.clone(), cut.clone(), cut, first, Answer::Stream(Vec::new()), second]);
    tokio::time::sleep(20 * S).await;
    world.relist.request_relist();
    tokio::time::sleep(S).await;
    let begin =
        ["watch list", "watch list", "watch list", "limit=500", "watch resourceVersion=30", "limit=500"];
    assert_eq!(world.requests()[..6], begin);
    assert_eq!(world.store.position(), 31);
    tokio::time::sleep(600 * S).await;
    world.relist.request_relist();
    tokio::time::sleep(S).await;
    assert!(world.requests()[6..].contains(&"watch list".to_owned()), "{:?}", world.requests());
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_tokens_change_for_ever_is_given_up_and_readiness_tells_why() {
    let mut script = vec![refused()];
    script.extend((0..500).map(|n| page(30, &[], &format!("token-{n}"))));
    let world = start(script);
    tokio::time::sleep(5 * S).await;
    let error = world.ready.check().unwrap_err();
    assert!(error.contains("the first list is not complete: the list has no end: 50 pages"), "{error}");
    let begun = world.requests().iter().filter(|request| *request == "limit=500").count();
    assert!((2..5).contains(&begun), "begun anew, with growing delays: {begun}");
    assert!(world.counted("endless_list"));
}

#[tokio::test(start_paused = true)]
async fn a_cache_whose_later_lists_fail_is_not_ready_after_a_minute() {
    let expired = Answer::Stream(vec![line("ERROR", status(410, "Expired"))]);
    let mut script = vec![refused(), page(30, &[("a", 5)], ""), expired];
    script.extend((0..2000).map(|n| page(31, &[], &format!("token-{n}"))));
    let world = start(script);
    tokio::time::sleep(30 * S).await;
    assert_eq!(world.ready.check(), Ok(()));
    tokio::time::sleep(60 * S).await;
    let error = world.ready.check().unwrap_err();
    assert!(error.starts_with("no list has been complete for ") && error.contains("no end"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_page_that_fails_is_requested_again_with_its_token() {
    let mut busy = status(429, "TooManyRequests");
    busy["details"] = json!({"retryAfterSeconds": 20});
    let world = start(vec![
        refused(),
        page(30, &[("a", 5)], "two"),
        Answer::Status(500, status(500, "InternalError")),
        Answer::Page(json!({"items": "what?"})),
        Answer::Status(429, busy),
        page(30, &[("b", 6)], ""),
    ]);
    tokio::time::sleep(60 * S).await;
    let again = "limit=500&continue=two";
    assert_eq!(world.requests()[1..6], ["limit=500", again, again, again, again]);
    assert!(world.times()[5] - world.times()[4] >= 20_000, "as the server wished");
    assert_eq!(world.names(), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn an_expired_paged_list_is_restarted_and_finally_read_in_one_page() {
    let gone = Answer::Status(410, status(410, "Expired"));
    let world = start(vec![
        refused(),
        page(30, &[("a", 5), ("gone", 6)], "two"),
        gone.clone(),
        page(40, &[("a", 5)], "two"),
        gone,
        page(50, &[("a", 5), ("b", 6)], ""),
    ]);
    tokio::time::sleep(60 * S).await;
    let requests = world.requests();
    assert_eq!(
        requests[1..7],
        [
            "limit=500",
            "limit=500&continue=two",
            "limit=500",
            "limit=500&continue=two",
            "limit=0",
            "watch resourceVersion=50"
        ]
    );
    assert_eq!(world.dispatched(), ["+a@5", "+gone@6", "+b@6", "-gone@6", "=50"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_older_than_the_cache_is_refused_until_the_server_insists() {
    let mut script = vec![
        Answer::Stream(vec![added("a", 50), complete(100), Step::Wait(2 * S), Step::End]),
        Answer::Status(410, status(410, "Gone")),
    ];
    for _ in 0..4 {
        script.push(Answer::Stream(vec![added("b", 7), complete(90)]));
    }
    let world = start(script);
    tokio::time::sleep(3 * S).await;
    assert_eq!((world.store.position(), world.names()), (100, vec!["a".into(), "b".into()]));
    tokio::time::sleep(60 * S).await;
    assert_eq!((world.store.position(), world.names()), (90, vec!["b".into()]), "restored from a backup");
    assert!(world.counted("stale_list"));
}

#[tokio::test(start_paused = true)]
async fn a_list_can_be_requested_and_concurrent_requests_are_one() {
    let world =
        start(vec![Answer::Stream(vec![added("a", 5), complete(10)]), Answer::Stream(vec![complete(20)])]);
    tokio::time::sleep(S).await;
    for _ in 0..3 {
        world.relist.request_relist();
    }
    tokio::time::sleep(S).await;
    assert_eq!(world.requests(), ["watch list", "watch list"]);
    assert_eq!(world.dispatched(), ["+a@5", "=10", "-a@5", "=20"]);
}

#[tokio::test(start_paused = true)]
async fn namespace_and_selector_are_part_of_every_request() {
    let options = InformerOptions {
        namespace: Some("shop".into()),
        label_selector: Some("app=web,tier in (a,b)".into()),
        page_size: 2,
        ..InformerOptions::default()
    };
    let world = start_with(vec![refused(), page(30, &[], "")], options);
    tokio::time::sleep(S).await;
    let selector = "labelSelector=app%3Dweb%2Ctier%20in%20%28a%2Cb%29";
    for (_, request) in world.requests.lock().iter() {
        assert!(request.starts_with("/apis/test.io/v1/namespaces/shop/things?"), "{request}");
        assert!(request.ends_with(selector), "{request}");
    }
    assert_eq!(world.requests.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_only_fills_a_cache_costs_the_servers_database_nothing() {
    let options = InformerOptions { may_lag: true, ..InformerOptions::default() };
    let gone = || Answer::Stream(vec![line("ERROR", status(410, "Expired"))]);
    let ahead = json!({"status": "Failure", "reason": "Timeout", "code": 504,
        "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}});
    let world = start_with(
        vec![
            refused(),
            page(30, &[("a", 5)], "two"),
            page(30, &[("b", 6)], ""),
            gone(),
            page(40, &[("a", 5)], ""),
            gone(),
            Answer::Status(504, ahead),
            page(50, &[("a", 5)], ""),
        ],
        options,
    );
    tokio::time::sleep(20 * S).await;
    world.relist.request_relist();
    tokio::time::sleep(S).await;
    let lists: Vec<String> =
        world.requests().into_iter().filter(|request| !request.starts_with("watch")).collect();
    assert_eq!(
        lists,
        [
            "limit=500&resourceVersion=0",
            "limit=500&continue=two",
            "resourceVersion=30&resourceVersionMatch=NotOlderThan",
            // The server has never had that version: its state is accepted, once it is requested without one.
            "resourceVersion=40&resourceVersionMatch=NotOlderThan",
            "limit=500",
            // A requested list shows the current state.
            "limit=500",
        ]
    );
    assert_eq!(world.store.position(), 50);
}

#[tokio::test(start_paused = true)]
async fn a_first_page_that_breaks_off_leaves_nothing_behind() {
    let text = json!({"metadata": {"resourceVersion": "30"}, "items": [json_of("gone", "gone", 5), json_of("a", "a", 6)]});
    let text = text.to_string();
    let cut = text.find("\"a\"").unwrap();
    let world = start(vec![
        refused(),
        Answer::Stream(vec![Step::Send(text.as_bytes()[..cut].to_vec()), Step::Break]),
        page(40, &[("a", 6)], ""),
    ]);
    tokio::time::sleep(10 * S).await;
    assert_eq!((world.names(), world.store.position()), (vec!["a".into()], 40));
    assert!(world.counted("transport"));
}

#[tokio::test(start_paused = true)]
async fn a_list_in_one_piece_may_be_larger_than_any_answer_that_is_kept_whole() {
    let gone = Answer::Status(410, status(410, "Expired"));
    let mut steps = vec![Step::Send(br#"{"metadata":{"resourceVersion":"50"},"items":["#.to_vec())];
    for number in 0..17 {
        let name = format!("t{number}");
        let mut text = json_of(&name, &name, 6).to_string().into_bytes();
        text.insert(0, if number == 0 { b' ' } else { b',' });
        // An object is cut in two, and much that is none lies between them.
        text.resize(16 << 20, b' ');
        let rest = text.split_off(20);
        steps.extend([Step::Send(text), Step::Send(rest)]);
    }
    steps.push(Step::Send(b"]}".to_vec()));
    steps.push(Step::End);
    let world = start(vec![
        refused(),
        page(30, &[], "two"),
        gone.clone(),
        page(30, &[], "two"),
        gone,
        Answer::Stream(steps),
    ]);
    tokio::time::sleep(10 * S).await;
    assert_eq!(world.store.len(), 17);
    assert!(world.ready.is_ready());
    assert_eq!(world.requests()[5..], ["limit=0", "watch resourceVersion=50"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_stops_on_the_way_is_requested_again() {
    let world = start(vec![
        refused(),
        Answer::Stream(vec![Step::Send(br#"{"metadata":{"resourceVersion":"30"},"items":["#.to_vec())]),
        page(40, &[("a", 5)], ""),
    ]);
    tokio::time::sleep(45 * S).await;
    assert_eq!(world.names(), ["a"]);
    assert!(world.counted("timeout"));
}
