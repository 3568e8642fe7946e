//! Promise: `ringmain publish` stores the key and headers that it was given, or refuses: never others.

use crate::broker::Broker;
use crate::subcommands::run;

#[test]
fn control_characters_are_refused() {
    let broker = Broker::start();
    broker.create_topic("t");
    for value in
        ["a\r\nX-Header-Other: q", "a\nb", "a\rb", "\r\n", "a\u{1}", "a\u{7f}", "a\r\n\r\nGET /topics HTTP/1.1"]
    {
        let outcome = run(&broker, &["publish", "t", "x", "--key", value]).expect(2);
        assert!(outcome.out.is_empty() && !outcome.words.contains("panicked"), "{outcome:?}");
        run(&broker, &["publish", "t", "x", "--header", &format!("trace={value}")]).expect(2);
        run(&broker, &["publish", "t", "x", "--header", &format!("{value}=trace")]).expect(2);
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
    for value in ["", "plain", "a b", "a=b;c, d", "ü"] {
        let outcome = run(&broker, &["publish", "t", "x", "--key", value, "--header", &format!("trace={value}")]);
        if outcome.code == Some(0) {
            let stored = broker.get("/topics/t/messages?limit=1000").expect(200).data();
            let last = stored["messages"].as_array().unwrap().last().unwrap().clone();
            assert!(last["key"] == value && last["headers"]["trace"] == value, "{value:?} became {last}");
        } else {
            assert!(!outcome.words.is_empty(), "{value:?}: {outcome:?}");
        }
    }
}
