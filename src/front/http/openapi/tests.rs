//! The description names the routes that there are, with their methods, and hangs together; runs on the test thread.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use ringmain_wire::http::Target;
use serde_json::Value;

use super::DOCUMENT;
use crate::front::http::dashboard::Part;
use crate::front::http::group_requests::GroupVerb;
use crate::front::http::route::Place;

/// Every path that is described.
const PATHS: [&str; 20] = [
    "/topics",
    "/topics/{name}",
    "/topics/{name}/publish",
    "/topics/{name}/messages",
    "/topics/{name}/subscribe/sse",
    "/topics/{name}/subscribe/ws",
    "/topics/{name}/groups",
    "/topics/{name}/groups/{group}",
    "/topics/{name}/groups/{group}/seek",
    "/topics/{name}/groups/{group}/fetch",
    "/topics/{name}/groups/{group}/ack",
    "/topics/{name}/groups/{group}/nack",
    "/subscribe/sse",
    "/subscribe/ws",
    "/health",
    "/health/ready",
    "/metrics",
    "/openapi.json",
    "/dashboard",
    "/dashboard/{file}",
];

/// Where a place is described; a new kind of place has to be named here, and so in the description.
fn path_of(place: &Place) -> Option<&'static str> {
    let index = match place {
        // The whole server has no path, and the echo is for conformance suites, when it is asked for.
        Place::Server | Place::Echo => return None,
        Place::Topics => 0,
        Place::Topic(_) => 1,
        Place::Publish(_) => 2,
        Place::Messages(_) => 3,
        Place::Sse(_) => 4,
        Place::WebSocket(_) => 5,
        Place::Groups(_) => 6,
        Place::Group(..) => 7,
        Place::GroupVerb(_, _, verb) => match verb {
            GroupVerb::Stat | GroupVerb::Delete => return None,
            GroupVerb::Seek => 8,
            GroupVerb::Fetch => 9,
            GroupVerb::Ack => 10,
            GroupVerb::Nack => 11,
        },
        Place::SseOfSeveral => 12,
        Place::WebSocketOfSeveral => 13,
        Place::Health => 14,
        Place::Ready => 15,
        Place::Metrics => 16,
        Place::OpenApi => 17,
        Place::Dashboard(part) if *part == Part::page() => 18,
        Place::Dashboard(_) => 19,
    };
    Some(PATHS[index])
}

fn document() -> Value {
    serde_json::from_str(DOCUMENT).unwrap()
}

#[test]
fn the_routes_and_their_methods_are_those_that_are_described() {
    let document = document();
    let described: BTreeSet<&str> = document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(described, BTreeSet::from(PATHS));
    for path in PATHS {
        let target = path.replace("{name}", "payments").replace("{group}", "billing").replace("{file}", "page.mjs");
        let place = Place::find(&Target::parse(&target).unwrap()).unwrap();
        assert_eq!(path_of(&place), Some(path));
        let allowed = place.allow().split(", ").filter(|method| !matches!(*method, "HEAD" | "OPTIONS"));
        let allowed: BTreeSet<String> = allowed.map(str::to_ascii_lowercase).collect();
        let item = document["paths"][path].as_object().unwrap();
        let methods: BTreeSet<String> = item.keys().filter(|key| *key != "parameters").cloned().collect();
        assert_eq!(methods, allowed, "{path}");
    }
}

#[test]
fn each_reference_leads_somewhere_and_each_operation_has_its_own_name() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"));
    let (mut values, mut names) = (vec![&document], BTreeSet::new());
    while let Some(value) = values.pop() {
        match value {
            Value::Object(members) => {
                if let Some(Value::String(reference)) = members.get("$ref") {
                    let pointer = reference.strip_prefix('#').unwrap();
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                if let Some(Value::String(name)) = members.get("operationId") {
                    assert!(names.insert(name), "{name} is there twice");
                }
                values.extend(members.values());
            }
            Value::Array(elements) => values.extend(elements),
            _ => {}
        }
    }
    assert!(names.len() >= PATHS.len());
}
