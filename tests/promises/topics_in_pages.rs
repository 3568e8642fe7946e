//! Promise: the list of topics comes in pages by name: each topic once, whatever is made and deleted meanwhile elsewhere in the list.

use crate::broker::Broker;
use ringmain_model::limit::REPORTED_PARTITIONS_MAX;
use serde_json::{Value, json};

fn page(broker: &Broker, query: &str) -> (Vec<String>, Option<String>) {
    let told = broker.get(&format!("/topics{query}")).expect(200).json();
    let names = told["data"].as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap().to_owned());
    (names.collect(), told["next_cursor"].as_str().map(str::to_owned))
}

/// All names, page by page; `between` is done after each page.
fn all_pages(broker: &Broker, limit: usize, mut between: impl FnMut()) -> Vec<String> {
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let query = if cursor.is_empty() { String::new() } else { format!("&cursor={cursor}") };
        let (some, next) = page(broker, &format!("?limit={limit}{query}"));
        assert!(some.len() <= limit, "{} of {limit}", some.len());
        names.extend(some);
        between();
        match next {
            Some(next) => cursor = next.replace(' ', "%20"),
            None => return names,
        }
    }
}

#[test]
fn each_topic_is_on_one_page() {
    let broker = Broker::start();
    let mut names: Vec<String> = (0..23).map(|number| format!("topic {number:02}")).collect();
    for name in &names {
        broker.create_topic_with(json!({ "partitions": 1 + names.len() % 3 }), name);
    }
    names.sort();
    for limit in [1, 2, 5, 22, 23, 24, 1000] {
        assert_eq!(all_pages(&broker, limit, || ()), names, "{limit} a page");
    }
    assert_eq!(page(&broker, "").0, names, "without a limit all come");
    assert_eq!(page(&broker, "").1, None);
    // The topic that a cursor names may have gone.
    broker.delete_topic("topic 04");
    assert_eq!(page(&broker, "?cursor=topic%2004&limit=1").0, ["topic 05"]);
    assert_eq!(page(&broker, "?cursor=zzz"), (Vec::new(), None));
    for query in ["?limit=0", "?limit=x", "?limit=-1"] {
        broker.get(&format!("/topics{query}")).expect_error(400, "invalid_request");
    }
}

#[test]
fn what_comes_and_goes_moves_no_other() {
    let broker = Broker::start();
    let stays: Vec<String> = (0..20).map(|number| format!("m{number:02}")).collect();
    stays.iter().for_each(|name| broker.create_topic(name));
    let mut turn = 0;
    let seen = all_pages(&broker, 3, || {
        // Before and behind wherever the reader is.
        for prefix in ["a", "z"] {
            broker.create_topic(&format!("{prefix}{turn}"));
            if turn > 0 {
                broker.delete_topic(&format!("{prefix}{}", turn - 1));
            }
        }
        turn += 1;
    });
    let of_those: Vec<&String> = seen.iter().filter(|name| name.starts_with('m')).collect();
    assert_eq!(of_those, stays.iter().collect::<Vec<_>>());
    let told: Value = broker.get("/topics?limit=1").expect(200).json();
    assert!(told["next_cursor"].is_string(), "{told}");
}

#[test]
fn more_than_is_reported_at_a_time_comes_whole() {
    let broker = Broker::start();
    let mut names: Vec<String> = (0..REPORTED_PARTITIONS_MAX * 2).map(|number| format!("t{number}")).collect();
    for (number, name) in names.iter().enumerate() {
        broker.create_topic_with(json!({ "partitions": if number % 40 == 0 { 64 } else { 1 } }), name);
    }
    names.sort();
    for limit in [names.len() - 1, names.len(), 100] {
        assert_eq!(all_pages(&broker, limit, || ()), names, "{limit} a page");
    }
    assert_eq!(page(&broker, ""), (names, None));
    let told = broker.get("/topics").expect(200).json();
    for topic in told["data"].as_array().unwrap() {
        let parts = topic["partition_stats"].as_array().map_or(1, Vec::len);
        assert_eq!(topic["partitions"].as_u64(), Some(parts as u64), "{topic}");
    }
}
