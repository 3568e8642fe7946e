//! Requests set to work and their answers written: the part of a session that knows what requests mean. On its core.

use std::borrow::Cow;

use ringmain_driver::{Answer, CoreReport, Io, Protocol, Request, SlowReader, StartAt, Subscription};
use ringmain_engine::Reply;
use ringmain_model::limit::MESSAGE_HEADERS_MAX;
use ringmain_model::{Refusal, RefusalKind, TopicName, TopicPatch};
use ringmain_wire::http::{RequestHead, Target};
use ringmain_wire::ws::check_upgrade;

use super::HttpFront;
use super::dashboard::Showing;
use super::exchange::{Company, Spread, Task, Waiting};
use super::fetch::Fetch;
use super::gather::{Gather, Gathered, Part};
use super::group_requests::{GroupTask, GroupVerb};
use super::openapi::write_openapi;
use super::problem::{CODING_STATUS, Problem};
use super::publish::PublishTask;
use super::respond::{Context, Response};
use super::route::{Place, Verb};
use super::session::Session;
use super::settings::read_change;
use super::several::SeveralOpening;
use super::sse::write_head;
use super::subscribe::{Face, Opening, reads_all_partitions};
use super::survey::{ListPage, Scrape, Survey, Surveyed};
use super::topics::{newly_made, read_create};
use super::ws::{EXTENDED, Socket, write_switch};

/// What scripts of other origins may send.
const CORS_METHODS: &str = "GET, HEAD, POST, PATCH, DELETE, OPTIONS";
const CORS_HEADERS: &str = "Authorization, Content-Type, Idempotency-Key, Last-Event-ID, X-Key";

impl HttpFront {
    /// Decides what a request's head asks for, and fills in who may read the answer.
    pub(super) fn plan(&self, head: &RequestHead<'_>, context: &mut Context, io: &Io<'_>) -> Result<Task, Problem> {
        let origin = head.headers.text("origin");
        if self.settings.origins.admit(head.host, origin)? {
            context.origin = origin.map(Box::from);
        }
        let target = Target::parse(head.target)?;
        let place = Place::find(&target)?;
        let verb = place.check(head.method, head.method_text)?;
        if matches!(verb, Verb::Post | Verb::Patch) {
            check_coding(head)?;
        }
        if verb == Verb::Options {
            let preflight = context.origin.is_some() && head.headers.get("access-control-request-method").is_some();
            let preflight = preflight.then(|| allowed_headers(head.headers.text("access-control-request-headers")));
            return Ok(Task::Options { allow: place.allow(), preflight });
        }
        match (place, verb) {
            (Place::Topics, Verb::Post) => Ok(Task::Create),
            (Place::Topics, _) => Ok(Task::List(ListPage::read(&target)?)),
            (Place::Topic(name), Verb::Delete) => Ok(Task::Delete(name)),
            (Place::Topic(name), Verb::Patch) => Ok(Task::Change(name)),
            (Place::Topic(topic), _) => Ok(Task::Stat(spread(topic, io))),
            (Place::Publish(topic), _) => {
                Ok(Task::Publish(PublishTask::read(topic, head, &target, &self.settings, io)?))
            }
            (Place::Messages(topic), _) => Ok(Task::Fetch(Box::new(Fetch::read(topic, &target)?))),
            (Place::Sse(topic), _) => plan_stream(topic, Face::Sse, head, &target, io),
            (Place::WebSocket(topic), _) => {
                let (accept, protocol) = check_upgrade(head, &[EXTENDED])?;
                plan_stream(topic, Face::WebSocket { accept, protocol }, head, &target, io)
            }
            (Place::SseOfSeveral, _) => {
                Ok(Task::SubscribeSeveral(Box::new(SeveralOpening::read(Face::Sse, head, &target, io)?)))
            }
            (Place::WebSocketOfSeveral, _) => {
                let (accept, protocol) = check_upgrade(head, &[EXTENDED])?;
                let face = Face::WebSocket { accept, protocol };
                Ok(Task::SubscribeSeveral(Box::new(SeveralOpening::read(face, head, &target, io)?)))
            }
            (Place::Echo, _) if self.settings.ws_echo => Ok(Task::Echo(check_upgrade(head, &[])?.0)),
            (Place::Echo, _) => {
                Err(Problem::new(404, "not_found", "start the broker with --ws-echo to have this path"))
            }
            (Place::Groups(topic), _) => Ok(Task::Groups(spread(topic, io))),
            (Place::Group(topic, group), verb) => {
                let verb = if verb == Verb::Delete { GroupVerb::Delete } else { GroupVerb::Stat };
                Ok(Task::Group(GroupTask { topic, group, verb }))
            }
            (Place::GroupVerb(topic, group, verb), _) => Ok(Task::Group(GroupTask { topic, group, verb })),
            (Place::Health, _) => Ok(Task::Health),
            (Place::Ready, _) => Ok(Task::Ready),
            (Place::Metrics, _) => Ok(Task::Metrics(Scrape::read(head, &target)?)),
            (Place::OpenApi, _) => Ok(Task::OpenApi),
            (Place::Dashboard(part), _) => Ok(Task::Dashboard(Showing::read(part, head))),
            (Place::Server, _) => Ok(Task::Options { allow: CORS_METHODS, preflight: None }),
        }
    }

    fn write_options(&self, context: &Context, out: &mut Vec<u8>, allow: &str, preflight: Option<&str>) {
        let Some(allowed_headers) = preflight else {
            let headers = [("Allow", allow)];
            context.write(out, &self.date, &Response { status: 204, content_type: None, headers: &headers, body: &[] });
            return;
        };
        let headers = [
            ("Allow", allow),
            ("Access-Control-Allow-Methods", CORS_METHODS),
            ("Access-Control-Allow-Headers", allowed_headers),
            ("Access-Control-Max-Age", "600"),
        ];
        context.write(out, &self.date, &Response { status: 204, content_type: None, headers: &headers, body: &[] });
    }
}

impl Session {
    /// Sets a request to work.
    pub(super) fn run(
        &mut self,
        front: &mut HttpFront,
        context: Context,
        task: Task,
        body: Cow<'_, [u8]>,
        io: &mut Io<'_>,
    ) {
        let company = task.company();
        match task {
            Task::Refuse(problem) => self.refuse(front, context, &problem, io),
            Task::Options { allow, preflight } => self.answer_now(context, io, |context, out| {
                front.write_options(context, out, allow, preflight.as_deref());
            }),
            Task::Health => self.run_health(front, context, "ok", io),
            Task::Ready => match unready(self.draining, io) {
                Some(problem) => self.refuse(front, context, &problem, io),
                None => self.run_health(front, context, "ready", io),
            },
            Task::OpenApi => self.answer_now(context, io, |context, out| write_openapi(context, out, &front.date)),
            Task::Dashboard(showing) => {
                self.answer_now(context, io, |context, out| showing.write(context, out, &front.date));
            }
            Task::Create => match read_create(&body, front) {
                Ok(request) => self.ask(context, company, Waiting::Created, request, io),
                Err(problem) => self.refuse(front, context, &problem, io),
            },
            Task::Change(name) => match read_change(&name, &body) {
                Ok(patch) if patch == TopicPatch::default() => self.ask_stats(context, company, &spread(name, io), io),
                Ok(patch) => {
                    let waiting = Waiting::Changed(name.clone());
                    self.ask(context, company, waiting, Request::Change { name, patch }, io);
                }
                Err(problem) => self.refuse(front, context, &problem, io),
            },
            Task::Delete(name) => self.ask(context, company, Waiting::Deleted, Request::Delete { name }, io),
            Task::Stat(Spread { topic, .. }) => self.ask_stats(context, company, &spread(topic, io), io),
            Task::List(page) => self.survey(context, company, Survey::list(page), io),
            Task::Metrics(scrape) => self.survey(context, company, Survey::metrics(scrape), io),
            Task::Publish(publish) => self.run_publish(front, context, publish, body, io),
            Task::Fetch(mut fetch) => match fetch.locate(io) {
                Ok(()) => {
                    fetch.until_ms = Some(io.now().monotonic_ms + fetch.wait_ms);
                    let request = fetch.request();
                    self.ask(context, company, Waiting::Page(fetch), request, io);
                }
                Err(problem) => self.refuse(front, context, &problem, io),
            },
            Task::Groups(Spread { topic, .. }) => {
                let Spread { topic, partitions } = spread(topic, io);
                let question = |partition| (partition, Request::Groups { topic: topic.clone(), partition });
                let questions = (0..partitions).map(question).collect();
                let number = self.exchanges.push(context, company, Waiting::Nothing);
                self.wait_for(number, Waiting::Groups(topic, Box::new(Gather::ask(number, questions, io))));
            }
            Task::Group(task) => self.run_group(front, context, task, &body, io),
            Task::Echo(accept) => {
                write_switch(&context, front, &accept, None, io.output());
                let socket = Socket::echo(front, io);
                self.become_socket(front, socket, io);
            }
            Task::Subscribe(_) | Task::SubscribeSeveral(_) if context.head_only => {
                self.answer_now(context, io, |context, out| write_head(context, front, out));
            }
            Task::Subscribe(opening) => self.run_one(front, context, opening, io),
            Task::SubscribeSeveral(opening) => self.run_several(front, context, opening, io),
        }
    }

    fn ask(&mut self, context: Context, company: Company, waiting: Waiting, request: Request, io: &mut Io<'_>) {
        let number = self.exchanges.push(context, company, waiting);
        io.ask(number, request);
    }

    fn survey(&mut self, context: Context, company: Company, survey: Survey, io: &mut Io<'_>) {
        let question = survey.question();
        self.ask(context, company, Waiting::Surveyed(Box::new(survey)), question, io);
    }

    /// Asks how all partitions of a topic stand.
    fn ask_stats(&mut self, context: Context, company: Company, spread: &Spread, io: &mut Io<'_>) {
        let number = self.exchanges.push(context, company, Waiting::Nothing);
        self.wait_for(number, Waiting::Stats(Box::new(ask_each_stat(number, spread, io))));
    }

    fn answer_now(&mut self, context: Context, io: &mut Io<'_>, write: impl FnOnce(&Context, &mut Vec<u8>)) {
        let number = self.exchanges.push(context, Company::Any, Waiting::Nothing);
        self.write_answer(number, io, write);
    }

    pub(super) fn write_answer(&mut self, number: u64, io: &mut Io<'_>, write: impl FnOnce(&Context, &mut Vec<u8>)) {
        if self.draining && self.exchanges.len() == 1 && self.has_nothing_in_hand() {
            // The last answer of a broker that goes down says so.
            self.exchanges.close_after(number);
        }
        if self.exchanges.answer(number, io.output(), write) {
            self.finish(io);
        }
    }

    pub(super) fn refuse(&mut self, front: &HttpFront, context: Context, problem: &Problem, io: &mut Io<'_>) {
        self.answer_now(context, io, |context, out| context.write_problem(out, &front.date, problem));
    }

    fn run_health(&mut self, front: &mut HttpFront, context: Context, status: &'static str, io: &mut Io<'_>) {
        let number = self.exchanges.push(context, Company::Any, Waiting::Nothing);
        // The answer needs the time, and its place in the output needs the answer.
        let mut answer = Vec::new();
        if let Some(exchange) = self.exchanges.get_mut(number) {
            front.write_health(&exchange.context, &mut answer, status, io);
        }
        self.write_answer(number, io, |_, out| out.extend_from_slice(&answer));
    }

    pub(super) fn on_answer(&mut self, front: &mut HttpFront, request: u64, answer: Answer, io: &mut Io<'_>) {
        if let Some(socket) = self.socket() {
            return socket.on_answer(request, answer, io);
        }
        let part = Part::of_request(request);
        let number = part.number;
        // The answer to a publish that nobody watches finds its request gone, or waiting for nothing.
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        match answer {
            Answer::Report(report) => self.on_report(front, number, *report, io),
            Answer::Reply(reply) => match (std::mem::replace(&mut exchange.waiting, Waiting::Nothing), reply) {
                (Waiting::Nothing, _) => return,
                (Waiting::Stats(gather), reply) => self.on_stats(front, part, *gather, reply, io),
                (Waiting::Groups(topic, gather), reply) => self.on_groups(front, part, (topic, *gather), reply, io),
                (Waiting::Group(wait), reply) => self.on_group_reply(front, part, wait, reply, io),
                (Waiting::Divided(divided), reply) => self.on_part_published(front, part, divided, reply, io),
                (_, Reply::Refused(refusal)) => self.write_refusal(front, number, refusal, io),
                (Waiting::Published(topic, has_several), reply) => {
                    self.on_published(front, part, (&topic, has_several), &reply, io);
                }
                (Waiting::Created, Reply::Created(stats)) => {
                    let parts = newly_made(&stats);
                    self.write_answer(number, io, |context, out| front.write_stats(context, out, 201, &parts));
                }
                (Waiting::Changed(topic), Reply::Stats(stats)) => {
                    if stats.partitions > 1 {
                        let spread = Spread { topic, partitions: stats.partitions };
                        exchange.waiting = Waiting::Stats(Box::new(ask_each_stat(number, &spread, io)));
                    } else {
                        self.write_answer(number, io, |context, out| front.write_stats(context, out, 200, &[*stats]));
                    }
                }
                (Waiting::Deleted, Reply::Deleted) => {
                    self.write_answer(number, io, |context, out| front.write_deleted(context, out));
                }
                (Waiting::Page(fetch), Reply::Page(page)) => self.on_page(front, number, fetch, page, io),
                (waiting, reply) => {
                    debug_assert!(false, "{waiting:?} was answered with {reply:?}");
                }
            },
        }
        self.resume(front, io);
        self.close_if_drained(io);
    }

    fn on_stats(&mut self, front: &mut HttpFront, part: Part, gather: Gather, reply: Reply, io: &mut Io<'_>) {
        let number = part.number;
        match gather.take(part.partition, reply, io) {
            Gathered::Refused(refusal) => self.write_refusal(front, number, refusal, io),
            Gathered::Some(gather) => self.wait_for(number, Waiting::Stats(Box::new(gather))),
            Gathered::All(replies) => {
                let stats = |(_, reply)| if let Reply::Stats(stats) = reply { Some(*stats) } else { None };
                let parts: Vec<_> = replies.into_iter().filter_map(stats).collect();
                self.write_answer(number, io, |context, out| front.write_stats(context, out, 200, &parts));
            }
        }
    }

    fn on_groups(
        &mut self,
        front: &mut HttpFront,
        part: Part,
        (topic, gather): (TopicName, Gather),
        reply: Reply,
        io: &mut Io<'_>,
    ) {
        let number = part.number;
        match gather.take(part.partition, reply, io) {
            Gathered::Refused(refusal) => self.write_refusal(front, number, refusal, io),
            Gathered::Some(gather) => self.wait_for(number, Waiting::Groups(topic, Box::new(gather))),
            Gathered::All(replies) => {
                let groups =
                    |(part, reply)| if let Reply::Groups(groups) = reply { Some((part, groups)) } else { None };
                let parts: Vec<_> = replies.into_iter().filter_map(groups).collect();
                self.write_answer(number, io, |context, out| front.write_groups(context, out, &topic, &parts));
            }
        }
    }

    pub(super) fn wait_for(&mut self, number: u64, waiting: Waiting) {
        if let Some(exchange) = self.exchanges.get_mut(number) {
            exchange.waiting = waiting;
        }
    }

    fn on_report(&mut self, front: &HttpFront, number: u64, report: CoreReport, io: &mut Io<'_>) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let Waiting::Surveyed(survey) = &mut exchange.waiting else { return };
        match survey.take(report, usize::from(io.cores())) {
            Surveyed::Waits => {}
            Surveyed::Next(question) => io.ask(number, question),
            Surveyed::Done => {
                if let Waiting::Surveyed(survey) = std::mem::replace(&mut exchange.waiting, Waiting::Nothing) {
                    self.write_answer(number, io, |context, out| survey.write(context, out, &front.date));
                    self.rest();
                }
            }
        }
    }

    fn on_page(
        &mut self,
        front: &mut HttpFront,
        number: u64,
        mut fetch: Box<Fetch>,
        page: ringmain_engine::Page,
        io: &mut Io<'_>,
    ) {
        if !self.draining && fetch.waits_for_more(&page, io.now().monotonic_ms) {
            io.subscribe(Subscription {
                number: 0,
                name: fetch.topic.clone(),
                partition: fetch.partition,
                start: StartAt::Offset(page.from),
                protocol: Protocol::Fetch,
                counts: false,
                slow: SlowReader::Lag,
            });
            fetch.listening = true;
            fetch.empty_page = Some(page);
            if let Some(exchange) = self.exchanges.get_mut(number) {
                exchange.waiting = Waiting::Page(fetch);
            }
            return;
        }
        self.write_answer(number, io, |context, out| front.write_page(context, out, &fetch, &page));
    }

    /// Answers a fetch that waits with the empty page that it has.
    pub(super) fn end_waiting_fetch(&mut self, front: &mut HttpFront, io: &mut Io<'_>) {
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        let Waiting::Page(fetch) = &mut exchange.waiting else { return };
        let Some(page) = fetch.empty_page.take() else { return };
        if let Waiting::Page(fetch) = std::mem::replace(&mut exchange.waiting, Waiting::Nothing) {
            io.unsubscribe(0);
            self.write_answer(number, io, |context, out| front.write_page(context, out, &fetch, &page));
            self.resume(front, io);
        }
    }

    /// Something new stands in the topic that a fetch waits for: it reads again.
    pub(super) fn wake_fetch(&mut self, io: &mut Io<'_>) {
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        let Waiting::Page(fetch) = &mut exchange.waiting else { return };
        if std::mem::replace(&mut fetch.listening, false) {
            fetch.empty_page = None;
            io.unsubscribe(0);
            io.ask(number, fetch.request());
        }
    }
}

/// The partitions of a topic as this core knows it.
fn spread(topic: TopicName, io: &Io<'_>) -> Spread {
    let partitions = io.place_of(&topic).map_or(1, |place| place.partitions);
    Spread { topic, partitions }
}

fn ask_each_stat(number: u64, spread: &Spread, io: &mut Io<'_>) -> Gather {
    let question = |partition| (partition, Request::Stat { name: spread.topic.clone(), partition });
    Gather::ask(number, (0..spread.partitions).map(question).collect(), io)
}

/// Why the broker should be sent no requests, if there is a reason.
fn unready(draining: bool, io: &Io<'_>) -> Option<Problem> {
    if draining {
        return Some(Refusal::new(RefusalKind::ShuttingDown, "the broker is going down").into());
    }
    let shards: Vec<_> = io.poisoned_shards().map(|shard| shard.0.to_string()).collect();
    let sentence = format!(
        "a write failed and shard {} stores nothing more until the broker is started again: look at its log and the disk; what is stored can be read",
        shards.join(", ")
    );
    (!shards.is_empty()).then(|| Refusal::new(RefusalKind::StorageFailed, sentence).into())
}

/// Bodies are taken as they are. One with a coding is refused, because what its sender meant would be stored and read as something else.
fn check_coding(head: &RequestHead<'_>) -> Result<(), Problem> {
    let values = head.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-encoding"));
    let mut codings = values.flat_map(|(_, value)| value.split(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    let Some(coding) = codings.find(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case(b"identity")) else {
        return Ok(());
    };
    let shown: String = String::from_utf8_lossy(coding).chars().take(40).collect();
    Err(Problem::new(
        CODING_STATUS,
        "unsupported_encoding",
        format!(
            "Content-Encoding: {shown} is not undone here, and nothing was done: send the body as it is, or, for a payload that is to be \
             stored in this form, leave Content-Encoding out and tell readers by a header such as X-Header-Content-Encoding"
        ),
    ))
}

/// The headers that a page may send: the known ones, and of those it asks for the `X-Header-…`, which may be any.
fn allowed_headers(asked: Option<&str>) -> String {
    let is_name =
        |name: &&str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    let names = asked.unwrap_or_default().split(',').map(str::trim).filter(is_name);
    let own = names.filter(|name| name.get(..9).is_some_and(|start| start.eq_ignore_ascii_case("x-header-")));
    own.take(MESSAGE_HEADERS_MAX).fold(CORS_HEADERS.to_owned(), |list, name| list + ", " + name)
}

/// A stream of a topic that this core knows; a topic that is not there is told before any handshake.
fn plan_stream(
    topic: TopicName,
    face: Face,
    head: &RequestHead<'_>,
    target: &Target<'_>,
    io: &Io<'_>,
) -> Result<Task, Problem> {
    if !io.has_topic(&topic) {
        return Err(Refusal::topic_not_found(topic.as_str()).into());
    }
    if reads_all_partitions(&topic, target, io) {
        return Ok(Task::SubscribeSeveral(Box::new(SeveralOpening::of_topic(topic, face, head, target, io)?)));
    }
    Ok(Task::Subscribe(Box::new(Opening::read(topic, face, head, target, io)?)))
}
