//! Requests set to work and their answers written: the part of a session that knows what requests mean. On its core.

use std::borrow::Cow;

use ringmain_driver::{Answer, CoreReport, Delivery, End, Io, Notice, Protocol, Request, StartAt};
use ringmain_engine::Reply;
use ringmain_model::{Position, Refusal};
use ringmain_wire::http::{RequestHead, Target};

use super::HttpFront;
use super::exchange::{Company, Task, Waiting};
use super::fetch::Fetch;
use super::problem::Problem;
use super::publish::{Ack, PublishTask};
use super::respond::{Context, Response};
use super::route::{Place, Verb};
use super::session::Session;
use super::sse::{EncodedBatch, Opening, Stream, write_head};
use super::topics::read_create;

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
        if verb == Verb::Options {
            let preflight = context.origin.is_some() && head.headers.get("access-control-request-method").is_some();
            return Ok(Task::Options { allow: place.allow(), preflight });
        }
        match (place, verb) {
            (Place::Topics, Verb::Post) => Ok(Task::Create),
            (Place::Topics, _) => Ok(Task::List),
            (Place::Topic(name), Verb::Delete) => Ok(Task::Delete(name)),
            (Place::Topic(name), _) => Ok(Task::Stat(name)),
            (Place::Publish(topic), _) => Ok(Task::Publish(PublishTask::read(topic, head, &target, io)?)),
            (Place::Messages(topic), _) => Ok(Task::Fetch(Box::new(Fetch::read(topic, &target)?))),
            (Place::Sse(topic), _) => {
                let opening = Opening::read(topic, head, &target)?;
                if !io.has_topic(&opening.topic) {
                    return Err(Refusal::topic_not_found(opening.topic.as_str()).into());
                }
                Ok(Task::Sse(Box::new(opening)))
            }
            (Place::Health, _) => Ok(Task::Health),
            (Place::Ready, _) => Ok(Task::Ready),
            (Place::Metrics, _) => Ok(Task::Metrics),
            (Place::Server, _) => Ok(Task::Options { allow: CORS_METHODS, preflight: false }),
        }
    }

    fn write_options(&self, context: &Context, out: &mut Vec<u8>, allow: &str, preflight: bool) {
        let cors = [
            ("Access-Control-Allow-Methods", CORS_METHODS),
            ("Access-Control-Allow-Headers", CORS_HEADERS),
            ("Access-Control-Max-Age", "600"),
        ];
        let mut headers = vec![("Allow", allow)];
        if preflight {
            headers.extend(cors);
        }
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
                front.write_options(context, out, allow, preflight);
            }),
            Task::Health => self.run_health(front, context, "ok", io),
            Task::Ready if self.draining => {
                let refusal = Refusal::new(ringmain_model::RefusalKind::ShuttingDown, "the broker is going down");
                self.refuse(front, context, &refusal.into(), io);
            }
            Task::Ready => self.run_health(front, context, "ready", io),
            Task::Create => match read_create(&body, front) {
                Ok(request) => self.ask(context, company, Waiting::Created, request, io),
                Err(problem) => self.refuse(front, context, &problem, io),
            },
            Task::Delete(name) => self.ask(context, company, Waiting::Deleted, Request::Delete { name }, io),
            Task::Stat(name) => self.ask(context, company, Waiting::Stats, Request::Stat { name }, io),
            Task::List => self.ask(context, company, Waiting::Listed(Vec::new()), Request::Report, io),
            Task::Metrics => self.ask(context, company, Waiting::Measured(Vec::new()), Request::Report, io),
            Task::Publish(publish) => self.run_publish(front, context, publish, body, io),
            Task::Fetch(mut fetch) => {
                fetch.until_ms = Some(io.now().monotonic_ms + fetch.wait_ms);
                let request = fetch.request();
                self.ask(context, company, Waiting::Page(fetch), request, io);
            }
            Task::Sse(_) if context.head_only => self.answer_now(context, io, |context, out| {
                write_head(context, front, out);
            }),
            Task::Sse(opening) => {
                io.subscribe(opening.topic.clone(), opening.start, Protocol::Sse);
                self.exchanges.push(context, company, Waiting::Subscribed(opening));
            }
        }
    }

    fn ask(&mut self, context: Context, company: Company, waiting: Waiting, request: Request, io: &mut Io<'_>) {
        let number = self.exchanges.push(context, company, waiting);
        io.ask(number, request);
    }

    fn answer_now(&mut self, context: Context, io: &mut Io<'_>, write: impl FnOnce(&Context, &mut Vec<u8>)) {
        let number = self.exchanges.push(context, Company::Any, Waiting::Nothing);
        self.write_answer(number, io, write);
    }

    fn write_answer(&mut self, number: u64, io: &mut Io<'_>, write: impl FnOnce(&Context, &mut Vec<u8>)) {
        if self.draining && self.exchanges.len() == 1 && self.has_nothing_in_hand() {
            // The last answer of a broker that goes down says so.
            self.exchanges.close_after(number);
        }
        if self.exchanges.answer(number, io.output(), write) {
            self.finish(io);
        }
    }

    fn refuse(&mut self, front: &HttpFront, context: Context, problem: &Problem, io: &mut Io<'_>) {
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

    fn run_publish(
        &mut self,
        front: &mut HttpFront,
        context: Context,
        publish: PublishTask,
        body: Cow<'_, [u8]>,
        io: &mut Io<'_>,
    ) {
        let (topic, ack) = (publish.topic.clone(), publish.ack);
        let request = match publish.finish(body, front) {
            Ok(request) => request,
            Err(problem) => return self.refuse(front, context, &problem, io),
        };
        if ack == Ack::None {
            let number = self.exchanges.push(context, Company::Any, Waiting::Nothing);
            io.ask(number, request);
            self.write_answer(number, io, |context, out| front.write_unwatched(context, out));
        } else {
            self.ask(context, Company::Publishes, Waiting::Published(topic), request, io);
        }
    }

    pub(super) fn on_answer(&mut self, front: &mut HttpFront, number: u64, answer: Answer, io: &mut Io<'_>) {
        // The answer to a publish that nobody watches finds its request gone, or waiting for nothing.
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        match answer {
            Answer::Report(report) => self.on_report(front, number, *report, io),
            Answer::Reply(reply) => match (std::mem::replace(&mut exchange.waiting, Waiting::Nothing), reply) {
                (Waiting::Nothing, _) => return,
                (_, Reply::Refused(refusal)) => {
                    let problem = Problem::from(refusal);
                    self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
                }
                (Waiting::Published(topic), Reply::Published { offset, time_us }) => {
                    self.write_answer(number, io, |context, out| {
                        front.write_published(context, out, &topic, offset, time_us);
                    });
                }
                (Waiting::Created, Reply::Created(stats)) => {
                    self.write_answer(number, io, |context, out| front.write_stats(context, out, 201, &stats));
                }
                (Waiting::Stats, Reply::Stats(stats)) => {
                    self.write_answer(number, io, |context, out| front.write_stats(context, out, 200, &stats));
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

    fn on_report(&mut self, front: &mut HttpFront, number: u64, report: CoreReport, io: &mut Io<'_>) {
        let Some(exchange) = self.exchanges.get_mut(number) else { return };
        let cores = usize::from(io.cores());
        match &mut exchange.waiting {
            Waiting::Listed(reports) | Waiting::Measured(reports) => {
                reports.push(report);
                if reports.len() < cores {
                    return;
                }
            }
            _ => return,
        }
        match std::mem::replace(&mut exchange.waiting, Waiting::Nothing) {
            Waiting::Listed(reports) => {
                self.write_answer(number, io, |context, out| front.write_list(context, out, &reports));
            }
            Waiting::Measured(reports) => {
                self.write_answer(number, io, |context, out| front.write_metrics(context, out, &reports));
            }
            _ => {}
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
            io.subscribe(fetch.topic.clone(), StartAt::Offset(page.from), Protocol::Fetch);
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
            io.unsubscribe();
            self.write_answer(number, io, |context, out| front.write_page(context, out, &fetch, &page));
            self.resume(front, io);
        }
    }

    /// Something new stands in the topic that a fetch waits for: it reads again.
    fn wake_fetch(&mut self, io: &mut Io<'_>) {
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        let Waiting::Page(fetch) = &mut exchange.waiting else { return };
        if std::mem::replace(&mut fetch.listening, false) {
            fetch.empty_page = None;
            io.unsubscribe();
            io.ask(number, fetch.request());
        }
    }

    pub(super) fn on_batch(&mut self, _: &HttpFront, delivery: Delivery<'_, EncodedBatch>, io: &mut Io<'_>) {
        match self.stream() {
            Some(stream) => stream.deliver(delivery, io),
            None => self.wake_fetch(io),
        }
    }

    pub(super) fn on_notice(&mut self, front: &mut HttpFront, notice: Notice, io: &mut Io<'_>) {
        if let Some(stream) = self.stream() {
            match notice {
                Notice::Gap { requested, resumed } => stream.tell_gap(requested, resumed, io),
                Notice::Ended(End::TopicDeleted) => {
                    stream.end_deleted(io);
                    self.finish(io);
                }
                Notice::Subscribed { .. } | Notice::Refused(_) => {}
            }
            return;
        }
        let Some((number, exchange)) = self.exchanges.oldest() else { return };
        match (&exchange.waiting, notice) {
            (Waiting::Subscribed(_), Notice::Subscribed { partition, high_water }) => {
                if let Some(exchange) = self.exchanges.take_oldest()
                    && let Waiting::Subscribed(opening) = exchange.waiting
                {
                    let at = Position { partition, next: high_water.offset() };
                    self.open_stream(front, &exchange.context, &opening, at, io);
                }
            }
            (Waiting::Page(_), Notice::Gap { .. }) => self.wake_fetch(io),
            (Waiting::Page(_), Notice::Subscribed { .. }) => {}
            (waiting @ (Waiting::Subscribed(_) | Waiting::Page(_)), notice) => {
                let problem = ended_problem(notice, waiting);
                self.write_answer(number, io, |context, out| context.write_problem(out, &front.date, &problem));
                self.resume(front, io);
            }
            _ => {}
        }
    }

    fn open_stream(
        &mut self,
        front: &mut HttpFront,
        context: &Context,
        opening: &Opening,
        at: Position,
        io: &mut Io<'_>,
    ) {
        let mut stream = Stream::open(opening, at, context, front, io);
        if self.draining {
            stream.end_shutdown(io);
            io.close(ringmain_driver::Close::Flush);
        }
        self.become_stream(stream);
        self.resume(front, io);
    }
}

/// What a request is told whose topic is not there any more.
fn ended_problem(notice: Notice, waiting: &Waiting) -> Problem {
    let topic = match waiting {
        Waiting::Subscribed(opening) => opening.topic.as_str(),
        Waiting::Page(fetch) => fetch.topic.as_str(),
        _ => "",
    };
    match notice {
        Notice::Refused(refusal) => refusal.into(),
        _ => Refusal::topic_not_found(topic).into(),
    }
}
