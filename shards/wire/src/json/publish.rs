//! A publish request's JSON body to payload, key and headers; pure, on the core that owns the connection.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::error::Category;

use super::{HEADERS_MAX, SHARED_NAME_BYTES_MAX, base64};
use crate::http::Refusal;

/// What a client asks to publish.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishBody {
    /// The decoded payload.
    pub payload: Vec<u8>,
    /// Member `key`: what decides the partition.
    pub key: Option<String>,
    /// Member `headers`: names and values in the sender's order. A value that is an array gives one entry for each of
    /// its strings, and a repeated name one for each time.
    pub headers: Vec<(String, String)>,
    /// Member `id`: what makes a repeat recognisable.
    pub id: Option<String>,
}

/// Decodes `{"payload":"<standard base64>"}` with the optional members `key`, `headers` and `id`. A payload of `null` is an
/// empty one, and `null` in the other members is as good as none. The time taken is linear in the body, nesting takes
/// no stack, and the memory is bounded by a small multiple of the body.
///
/// # Errors
///
/// 400 `invalid_json` with line and column if the text is not JSON, `invalid_body` if it has another shape, and
/// `invalid_base64` if the payload cannot be decoded. The framing is not affected: the connection can go on.
pub fn decode_publish(body: &[u8]) -> Result<PublishBody, Refusal> {
    let raw: Raw<'_> = serde_json::from_slice(body).map_err(|error| explain(&error))?;
    decode_raw(raw)
}

/// Decodes such an object that is part of a larger JSON text, which has been parsed.
///
/// # Errors
///
/// 400 `invalid_body` and `invalid_base64`, as [`decode_publish`].
pub fn publish_of_value(object: &serde_json::Value) -> Result<PublishBody, Refusal> {
    decode_raw(Raw::deserialize(object).map_err(|error| explain(&error))?)
}

fn decode_raw(raw: Raw<'_>) -> Result<PublishBody, Refusal> {
    let Some(payload) = raw.payload else {
        return Err(Refusal::new(
            400,
            "invalid_body",
            r#"The body has no member "payload". Send {"payload":"<standard base64>"}, or the raw bytes with Content-Type: application/octet-stream."#,
        ));
    };
    let payload = base64::decode(&payload).map_err(|why| {
        let message =
            format!("The payload is not standard base64: {why}. Use the alphabet A-Z a-z 0-9 + / and pad with =.");
        Refusal::new(400, "invalid_base64", message)
    })?;
    Ok(PublishBody { payload, key: raw.key, headers: raw.headers, id: raw.id })
}

#[cold]
fn explain(error: &serde_json::Error) -> Refusal {
    // The words quote the body, which may be long and anything.
    let why: String = error.to_string().chars().filter(|character| !character.is_control()).take(160).collect();
    match error.classify() {
        Category::Data => Refusal::new(
            400,
            "invalid_body",
            format!(r#"The body has not the expected form: {why}. Send {{"payload":"<standard base64>"}}."#),
        ),
        Category::Syntax | Category::Eof | Category::Io => {
            let place = format!("line {}, column {}", error.line(), error.column());
            let message = format!(
                "The body is not valid JSON ({place}): {why}. Correct it, or send the raw bytes with Content-Type: \
                 application/octet-stream."
            );
            Refusal::new(400, "invalid_json", message)
        }
    }
}

/// The object as it stands, the payload still in base64 and where possible in place.
#[derive(Default)]
struct Raw<'de> {
    payload: Option<Cow<'de, str>>,
    key: Option<String>,
    headers: Vec<(String, String)>,
    id: Option<String>,
}

impl<'de> Deserialize<'de> for Raw<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Raw<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object with the member payload")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Raw<'de>, A::Error> {
                let mut raw = Raw::default();
                while let Some(Text(name)) = members.next_key::<Text<'de>>()? {
                    match &*name {
                        "payload" => {
                            let payload = members.next_value::<Option<Text<'de>>>()?;
                            raw.payload = Some(payload.map_or(Cow::Borrowed(""), |Text(text)| text));
                        }
                        "key" => raw.key = members.next_value()?,
                        "id" => raw.id = members.next_value()?,
                        "headers" => {
                            raw.headers = members.next_value::<Option<HeaderMap>>()?.unwrap_or_default().0;
                        }
                        _ => {
                            members.next_value::<IgnoredAny>()?;
                        }
                    }
                }
                Ok(raw)
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// A string that is borrowed from the input unless it has escapes.
pub(super) struct Text<'t>(pub(super) Cow<'t, str>);

impl<'de: 't, 't> Deserialize<'de> for Text<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrowing;
        impl<'de> Visitor<'de> for Borrowing {
            type Value = Text<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrowing)
    }
}

/// An object of strings, or of arrays of strings, as a list in the order of the text.
#[derive(Default)]
pub(super) struct HeaderMap(pub(super) Vec<(String, String)>);

impl<'de> Deserialize<'de> for HeaderMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = HeaderMap;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of strings in headers")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<HeaderMap, A::Error> {
                let mut headers = Vec::new();
                while let Some(name) = members.next_key::<String>()? {
                    let Values(values) = members.next_value()?;
                    if headers.len() + values.len() > HEADERS_MAX {
                        return Err(A::Error::custom(format_args!("more than {HEADERS_MAX} headers")));
                    }
                    if values.len() > 1 && name.len() > SHARED_NAME_BYTES_MAX {
                        return Err(A::Error::custom("the name of several headers is too long"));
                    }
                    headers.extend(values.into_iter().map(|value| (name.clone(), value)));
                }
                Ok(HeaderMap(headers))
            }
        }
        deserializer.deserialize_map(Object)
    }
}

/// The values of one header name: a string is one, an array of strings is several.
struct Values(Vec<String>);

impl<'de> Deserialize<'de> for Values {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Values;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a string or an array of strings as header value")
            }

            fn visit_str<E>(self, text: &str) -> Result<Values, E> {
                Ok(Values(vec![text.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Values, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = elements.next_element::<String>()? {
                    if values.len() == HEADERS_MAX {
                        return Err(A::Error::custom(format_args!("more than {HEADERS_MAX} headers")));
                    }
                    values.push(value);
                }
                Ok(Values(values))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}
