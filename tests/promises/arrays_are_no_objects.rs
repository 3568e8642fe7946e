//! Promise: a body or frame that must be a JSON object is refused when it is anything else, also when its values would fit.

use crate::broker::Broker;
use crate::websocket::EXTENDED;
use serde_json::{Value, json};

#[test]
fn nothing_but_an_object_is_taken_for_one() {
    let broker = Broker::start();
    broker.create_topic("t");
    broker.publish_numbers("t", 0..3);
    broker.group_post("t", "g", "fetch", json!({ "from_offset": 0 }));
    let arrays: [(&str, Value); 10] = [
        ("/topics", json!(["arr", null, null, null, null, null])),
        ("/topics", json!(["arr"])),
        ("/topics", json!({ "name": "arr", "retention": [5, 5] })),
        ("/topics", json!({ "name": "arr", "retention": [5] })),
        ("/topics/t/publish", json!(["aGk=", null, null])),
        ("/topics/t/publish", json!(["aGk="])),
        ("/topics/t/groups/g/fetch", json!([3, 0, 0])),
        ("/topics/t/groups/g/seek", json!([1, null, false, false])),
        ("/topics/t/groups/g/ack", json!([0, null, null, null])),
        ("/topics/t/groups/g/nack", json!([0, null, null, 0])),
    ];
    for (target, body) in arrays {
        for body in [body, json!([]), json!([{}]), json!(null), json!(7), json!("text"), json!(true)] {
            if body.is_object() && body.get("name").is_none() {
                continue;
            }
            broker.post(target, &body).expect(400).expect_envelope_of_error();
        }
        broker.request("POST", target, crate::plenty::JSON, b" \n[1,2]").expect(400).expect_envelope_of_error();
    }
    let stats = broker.group("t", "g");
    assert!(stats["pending"] == 1 && stats["committed_offset"] == 0 && stats["next_offset"] == 1, "{stats}");
    assert_eq!(broker.stats("t")["message_count"], 3);
    broker.get("/topics/arr").expect(404);
}

#[test]
fn a_frame_is_an_object_too() {
    let broker = Broker::start();
    broker.create_topic("t");
    let mut socket = broker.websocket("t", "?group=g", &[EXTENDED]);
    for frame in [json!([]), json!([7]), json!([{ "ack": 7 }]), json!("ack"), json!(7), json!(null)] {
        socket.say(frame.clone());
        assert_eq!(socket.other()["error"]["status"], 400, "{frame}");
    }
    for publish in [json!(["aGk="]), json!("aGk="), json!(null), json!(7)] {
        socket.say(json!({ "publish": publish, "ref": 1 }));
        assert_eq!(socket.other()["error"]["status"], 400, "{publish}");
    }
    assert_eq!(broker.stats("t")["message_count"], 0);
}
