//! Which web pages may use the broker: CORS, and the guard against DNS rebinding of a broker on loopback. On any core.

use std::net::IpAddr;

use super::problem::Problem;

/// Who may read answers from a web page, and under which names the broker may be addressed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct OriginPolicy {
    /// The broker listens on loopback without tokens: other hosts and origins are refused, because a page from anywhere
    /// could otherwise reach it through a name that resolves to loopback, or publish by a form post.
    pub(crate) guarded: bool,
    /// Every origin is welcome (`*`).
    pub(crate) any: bool,
    /// Origins beside the loopback ones, like `https://app.example.org`, in lower case.
    pub(crate) allowed: Vec<String>,
}

impl OriginPolicy {
    /// Reads `RINGMAIN_CORS_ORIGINS`: `*`, or origins separated by commas.
    ///
    /// # Errors
    /// A sentence that names the entry that is no origin.
    pub(crate) fn parse(list: &str, guarded: bool) -> Result<Self, String> {
        let mut policy = Self { guarded, ..Self::default() };
        for entry in list.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            if entry == "*" {
                policy.any = true;
                continue;
            }
            let origin = entry.to_ascii_lowercase();
            match host_of_origin(&origin) {
                Some(host) if !host.is_empty() && !host.contains(['/', '?', '#']) => policy.allowed.push(origin),
                _ => {
                    return Err(format!(
                        "`{entry}` is no origin: write it like https://app.example.org, without a path"
                    ));
                }
            }
        }
        Ok(policy)
    }

    /// Decides on a request; the value says whether its origin may read the answer.
    pub(crate) fn admit(&self, host: Option<&str>, origin: Option<&str>) -> Result<bool, Problem> {
        let welcome = origin.is_some_and(|origin| self.welcomes(origin));
        if self.guarded {
            if let Some(origin) = origin.filter(|_| !welcome) {
                return Err(forbidden(&format!("pages of the origin {origin:?}")));
            }
            if let Some(host) = host.filter(|host| !self.is_own_name(host)) {
                return Err(forbidden(&format!("requests to the host {host:?}")));
            }
        }
        Ok(welcome)
    }

    fn welcomes(&self, origin: &str) -> bool {
        self.any
            || host_of_origin(origin).is_some_and(is_loopback)
            || self.allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin))
    }

    fn is_own_name(&self, host: &str) -> bool {
        is_loopback(host)
            || self.any
            || self.allowed.iter().filter_map(|origin| host_of_origin(origin)).any(|own| own.eq_ignore_ascii_case(host))
    }
}

fn forbidden(what: &str) -> Problem {
    let message = format!(
        "{what} are refused while the broker listens on loopback: add the origin to RINGMAIN_CORS_ORIGINS to allow them"
    );
    Problem::new(403, "forbidden_origin", message)
}

/// Host and port of `http://host:port`.
fn host_of_origin(origin: &str) -> Option<&str> {
    origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"))
}

/// Whether a host, with or without a port, is this machine by name or address.
fn is_loopback(host: &str) -> bool {
    let (name, rest) = match host.strip_prefix('[').map(|inner| inner.split_once(']')) {
        Some(Some(parts)) => parts,
        Some(None) => return false,
        None => host.split_at(host.find(':').unwrap_or(host.len())),
    };
    let port_follows =
        rest.is_empty() || rest.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()));
    port_follows
        && (name.eq_ignore_ascii_case("localhost") || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback()))
}
