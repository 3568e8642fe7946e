//! Promise: `/dashboard` is a page that needs nothing but the broker, and that can do nothing but ask it.

use crate::broker::Broker;

const PARTS: &[(&str, &str)] = &[
    ("/dashboard", "text/html; charset=utf-8"),
    ("/dashboard/page.css", "text/css; charset=utf-8"),
    ("/dashboard/page.mjs", "text/javascript; charset=utf-8"),
    ("/dashboard/icon.svg", "image/svg+xml; charset=utf-8"),
];

#[test]
fn the_page_and_its_parts_are_served_for_browsers_that_trust_nothing_else() {
    let broker = Broker::start();
    for (path, content_type) in PARTS {
        let answer = broker.get(path).expect(200);
        assert_eq!(answer.header("content-type"), Some(*content_type), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-cache"), "{path}");
        let policy = answer.header("content-security-policy").unwrap_or_default().to_owned();
        let rules: Vec<_> = policy.split("; ").collect();
        for rule in ["default-src 'none'", "script-src 'self'", "connect-src 'self'", "frame-ancestors 'none'"] {
            assert!(rules.contains(&rule), "{path}: {rule} is not in {policy}");
        }
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
    }
}

#[test]
fn everything_that_the_page_refers_to_is_there_and_nothing_is_elsewhere() {
    let broker = Broker::start();
    let page = broker.get("/dashboard").expect(200).text();
    let mut wanted: Vec<String> = ["href=\"", "src=\""]
        .iter()
        .flat_map(|mark| page.split(mark).skip(1))
        .filter_map(|rest| rest.split('"').next())
        .filter(|reference| !reference.starts_with('#'))
        .map(|reference| format!("/{reference}"))
        .collect();
    assert!(wanted.len() >= 3, "{wanted:?}");
    let mut seen = Vec::new();
    while let Some(path) = wanted.pop() {
        if seen.contains(&path) {
            continue;
        }
        let text = broker.get(&path).expect(200).text();
        let modules = text.split(" from './").skip(1).filter_map(|rest| rest.split('\'').next());
        wanted.extend(modules.map(|module| format!("/dashboard/{module}")));
        // The name of a language of drawings is no place.
        let text = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains("http://") && !text.contains("https://"), "{path} leads elsewhere");
        seen.push(path);
    }
    assert!(seen.len() > 10, "{seen:?}");
}

#[test]
fn head_is_get_without_the_body() {
    let broker = Broker::start();
    let mut connection = broker.connect();
    for (path, _) in PARTS {
        connection.send_request("GET", path, &[], b"");
        let get = connection.response_to("GET").expect(200);
        connection.send_request("HEAD", path, &[], b"");
        let head = connection.response_to("HEAD").expect(200);
        for name in ["content-type", "content-length", "etag", "content-security-policy"] {
            assert_eq!(head.header(name), get.header(name), "{path}: {name}");
        }
        assert_eq!(get.header("content-length"), Some(get.body.len().to_string().as_str()));
    }
}

#[test]
fn what_a_browser_has_is_not_sent_again() {
    let broker = Broker::start();
    let get = |tags: &str| broker.request("GET", "/dashboard/page.mjs", &[("If-None-Match", tags)], b"");
    let tag = broker.get("/dashboard/page.mjs").expect(200).header("etag").unwrap().to_owned();
    assert!(tag.len() > 2 && tag.starts_with('"') && tag.ends_with('"'), "{tag}");
    for tags in [tag.clone(), format!("W/{tag}"), format!("\"other\", {tag}"), "*".to_owned()] {
        let answer = get(&tags).expect(304);
        assert_eq!(answer.header("etag"), Some(tag.as_str()));
        assert!(answer.body.is_empty() && answer.header("content-length").is_none(), "{answer:?}");
    }
    for tags in ["\"other\"", "", tag.trim_matches('"')] {
        get(tags).expect(200);
    }
    let page = broker.get("/dashboard").expect(200).header("etag").unwrap().to_owned();
    assert_ne!(page, tag);
}

#[test]
fn a_slash_at_the_end_leads_to_where_references_hold() {
    let broker = Broker::start();
    for (path, location) in [("/dashboard/", "../dashboard"), ("/dashboard/page.css/", "../page.css")] {
        let answer = broker.get(path).expect(308);
        assert_eq!(answer.header("location"), Some(location));
    }
}

#[test]
fn other_parts_methods_and_hosts_are_refused_as_elsewhere() {
    let broker = Broker::start();
    for path in
        ["/dashboard/nothing.js", "/dashboard/page.html", "/dashboard/page.css/more", "/dashboard/..", "/dashboards"]
    {
        broker.get(path).expect_error(404, "not_found");
    }
    for path in ["/dashboard", "/dashboard/page.mjs"] {
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let answer = broker.request(method, path, &[], b"").expect_error(405, "method_not_allowed");
            assert!(answer.lists("allow", "GET") && answer.lists("allow", "HEAD"), "{answer:?}");
        }
        let headers = [("Host", "rebound.example.org")];
        broker.request("GET", path, &headers, b"").expect_error(403, "forbidden_origin");
        let headers = [("Origin", "https://elsewhere.example.org")];
        broker.request("GET", path, &headers, b"").expect_error(403, "forbidden_origin");
    }
}
