//! Lists of topics and metrics: made of many reports, a part of the topics in each, so that no core stops for them. On the core of
//! the connection.

use std::borrow::Cow;

use ringmain_driver::{CoreReport, Request};
use ringmain_model::TopicName;
use ringmain_model::limit::LISTED_TOPICS_MAX;
use ringmain_wire::http::{RequestHead, Target};

use super::metrics::{Exposition, Measuring};
use super::problem::Problem;
use super::query::{number_within, text, word};
use super::respond::{Context, Response, write_json};
use super::topics::stats_body;
use super::whole::WholeTopic;

/// What is made, and the reports on the next part of it.
#[derive(Debug)]
pub(super) struct Survey {
    work: Work,
    reports: Vec<CoreReport>,
}

#[derive(Debug)]
enum Work {
    List(Listing),
    Metrics(Box<Measuring>),
    /// Metrics without those of single topics.
    Totals(Box<Measuring>),
}

/// What a report leads to.
#[derive(Debug)]
pub(super) enum Surveyed {
    /// Other cores have not reported yet.
    Waits,
    /// The next part is to be asked for.
    Next(Request),
    /// It can be written.
    Done,
}

impl Survey {
    pub(super) fn list(page: ListPage) -> Self {
        Self { work: Work::List(Listing::new(page)), reports: Vec::new() }
    }

    pub(super) fn metrics(scrape: Scrape) -> Self {
        let measuring = Box::new(Measuring::new(scrape.exposition));
        let work = if scrape.has_topics { Work::Metrics(measuring) } else { Work::Totals(measuring) };
        Self { work, reports: Vec::new() }
    }

    /// What to ask first.
    pub(super) fn question(&self) -> Request {
        match &self.work {
            Work::List(listing) => {
                Request::Report { after: listing.page.after.clone(), topics_max: listing.page.limit }
            }
            Work::Metrics(_) => Request::Report { after: None, topics_max: LISTED_TOPICS_MAX },
            // The fewest that a report can have.
            Work::Totals(_) => Request::Report { after: None, topics_max: 1 },
        }
    }

    /// Takes the report of one of so many cores.
    pub(super) fn take(&mut self, report: CoreReport, cores: usize) -> Surveyed {
        self.reports.push(report);
        if self.reports.len() < cores {
            return Surveyed::Waits;
        }
        let mut reports = std::mem::take(&mut self.reports);
        // All reports end at the same name.
        let until = reports.first_mut().and_then(|report| report.until.take());
        let topics_left = match &mut self.work {
            Work::List(listing) => listing.take(&reports, until.as_ref()),
            Work::Metrics(measuring) => {
                measuring.take(&reports);
                LISTED_TOPICS_MAX
            }
            Work::Totals(_) => 0,
        };
        match until {
            Some(until) if topics_left > 0 => {
                Surveyed::Next(Request::Report { after: Some(until.as_str().into()), topics_max: topics_left })
            }
            _ => {
                if let Work::Metrics(measuring) | Work::Totals(measuring) = &mut self.work {
                    measuring.end(&reports);
                }
                Surveyed::Done
            }
        }
    }

    /// Writes the answer.
    pub(super) fn write(self, context: &Context, out: &mut Vec<u8>, date: &str) {
        match self.work {
            Work::List(listing) => {
                let body = listing.end();
                let content_type = Some("application/json");
                context.write(out, date, &Response { status: 200, content_type, headers: &[], body: &body });
            }
            Work::Metrics(measuring) | Work::Totals(measuring) => measuring.write(context, out, date),
        }
    }
}

/// Which metrics are wanted, and how.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scrape {
    exposition: Exposition,
    /// Not only what concerns the whole broker: with very many topics theirs are megabytes.
    has_topics: bool,
}

impl Scrape {
    pub(super) fn read(head: &RequestHead<'_>, target: &Target<'_>) -> Result<Self, Problem> {
        let has_topics = word(target, "topics", &[("true", true), ("false", false)])?.unwrap_or(true);
        Ok(Self { exposition: Exposition::wanted(head), has_topics })
    }
}

/// Which part of the list of topics is wanted.
#[derive(Debug)]
pub(super) struct ListPage {
    /// Names up to this one were seen.
    after: Option<Box<str>>,
    limit: usize,
}

impl ListPage {
    pub(super) fn read(target: &Target<'_>) -> Result<Self, Problem> {
        let all = LISTED_TOPICS_MAX as u64;
        let limit = number_within(target, "limit", 1..=all, all)?;
        let after = text(target, "cursor")?.map(Cow::into_owned);
        let limit = usize::try_from(limit).unwrap_or(LISTED_TOPICS_MAX);
        Ok(Self { after: after.map(String::into_boxed_str), limit })
    }
}

/// A list of topics in the making, sorted by name. One that does not reach the end says where the next one begins.
#[derive(Debug)]
struct Listing {
    page: ListPage,
    body: Vec<u8>,
    count: usize,
    next_cursor: Option<TopicName>,
}

impl Listing {
    fn new(page: ListPage) -> Self {
        Self { page, body: br#"{"status":"success","data":["#.to_vec(), count: 0, next_cursor: None }
    }

    /// Adds the topics up to `until`; says how many more are wanted.
    fn take(&mut self, reports: &[CoreReport], until: Option<&TopicName>) -> usize {
        let mut last = None;
        for topic in WholeTopic::list(reports) {
            if self.count == self.page.limit {
                // It was made since the question: the next page begins with it.
                self.next_cursor = last;
                return 0;
            }
            if self.count > 0 {
                self.body.push(b',');
            }
            write_json(&mut self.body, &stats_body(&topic));
            self.count += 1;
            last = Some(topic.first().name.clone());
        }
        let left = self.page.limit - self.count;
        if left == 0 {
            self.next_cursor = until.cloned();
        }
        left
    }

    fn end(mut self) -> Vec<u8> {
        self.body.push(b']');
        if let Some(cursor) = &self.next_cursor {
            self.body.extend_from_slice(br#","next_cursor":"#);
            write_json(&mut self.body, &cursor.as_str());
        }
        self.body.push(b'}');
        self.body
    }
}
