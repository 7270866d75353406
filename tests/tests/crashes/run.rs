//! A scenario carried out by people whose daemon is killed under their hands: they start it again, follow from where they
//! were, repeat what was not answered with the same ids, and go on until it is through.

mod daemons;

use std::collections::{HashSet, VecDeque};

use agentd_tests::{Daemon, Home, Model, Tree};
use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::check::{Afterwards, Forked};
use crate::client::{Answer, Talk, Trouble, Wire};
use crate::kills::{Kill, Timer};
use crate::scenario::{Act, Does, END, Places, Scenario, When};
use crate::seen::{Seen, Told, number};

/// There is no such session.
pub(crate) const NOT_FOUND: i64 = -32050;

/// How often people ask the model to go on after a crash before they give up.
const PUSHES: usize = 12;

pub(crate) struct Run<'s> {
    pub(crate) scenario: &'s Scenario,
    pub(crate) home: Home,
    pub(crate) model: Model,
    pub(crate) session: String,
    /// The id of the session that some scenarios fork from it.
    pub(crate) fork: String,
    pub(crate) seen: Seen,
    /// The project as it was before anybody spoke.
    pub(crate) untouched: Tree,
    /// How many of the kills there was still something to kill for.
    pub(crate) killed: usize,
    kills: VecDeque<Kill>,
    daemon: Option<Daemon>,
    timer: Option<Timer>,
    /// The running daemon will be asked to end rather than killed.
    asked: bool,
    clients: [Client; 2],
    acts: VecDeque<Act>,
    answered: HashSet<String>,
    pushes: usize,
    /// The session is known to be there, so a new connection follows it.
    follow: bool,
}

#[derive(Default)]
struct Client {
    wire: Option<Wire>,
    /// The last journaled event that it was sent.
    last: u64,
    /// Its subscription, and those that it has left.
    follows: Option<Value>,
    left: Vec<Value>,
}

/// A call that somebody makes, until it is answered.
struct Call {
    who: usize,
    method: &'static str,
    params: Value,
}

impl<'s> Run<'s> {
    pub(crate) fn new(scenario: &'s Scenario, kills: &[Kill]) -> Self {
        let home = Home::new();
        let model = Model::start(&home, (scenario.script)(&Places::of(&home)));
        home.settings(&format!(
            "model = \"test/m\"\n[providers.test]\ndialect = \"{}\"\nbase_url = \"{}\"\n",
            scenario.dialect.name(),
            model.base_for(scenario.dialect)
        ));
        home.key("test", "sk-not-a-secret");
        if scenario.git {
            git_init(&home);
        }
        let untouched = home.project().tree();
        Self {
            scenario,
            home,
            model,
            session: uuid::Uuid::now_v7().to_string(),
            fork: uuid::Uuid::now_v7().to_string(),
            seen: Seen::default(),
            untouched,
            killed: 0,
            kills: kills.iter().cloned().collect(),
            daemon: None,
            timer: None,
            asked: false,
            clients: Default::default(),
            acts: scenario.acts.iter().cloned().collect(),
            answered: HashSet::new(),
            pushes: 0,
            follow: false,
        }
    }

    /// The scenario from its first word to the model's last.
    pub(crate) fn go(&mut self) -> anyhow::Result<()> {
        self.start()?;
        let params =
            json!({"sessionId": self.session, "cwd": self.home.project().cwd(), "mode": self.scenario.mode});
        self.call(0, "session/new", params)?.map_err(|error| anyhow::anyhow!("session/new: {error:?}"))?;
        self.follow = true;
        self.retrying(|run| run.follow_all())?;
        let mut look = true;
        loop {
            if let Some(act) = self.due() {
                self.perform(&act)?;
                look = true;
            } else if self.answer_next()? {
                look = true;
            } else if std::mem::take(&mut look) {
                if self.at_rest()? {
                    if !self.go_on()? {
                        return self.second_hears_all();
                    }
                    look = true;
                }
            } else {
                let ends = |seen: &Seen| seen.count("turnFinished") + seen.count("synced");
                let before = ends(&self.seen);
                self.retrying(|run| run.pump(0))?;
                look = ends(&self.seen) > before;
            }
        }
    }

    /// The other client has seen what the first one has; that it is the same is looked at on the way.
    fn second_hears_all(&mut self) -> anyhow::Result<()> {
        self.retrying(|run| {
            while run.clients[1].last < run.clients[0].last {
                run.pump(1)?;
            }
            Ok(())
        })
    }

    /// The newest process is killed too, and a new one asked for everything from the beginning.
    pub(crate) fn afterwards(&mut self) -> anyhow::Result<Afterwards> {
        self.timer = None;
        self.kills.clear();
        // Nobody follows from where they were: what is heard is the one subscription below.
        self.follow = false;
        if let Some(daemon) = &mut self.daemon {
            daemon.kill9();
        }
        self.start()?;
        self.ask_again()?;
        let state = self.state()?;
        let forked = self.forked()?;
        let mut events = Vec::new();
        let wire = self.clients[0].wire.as_mut().context("a client")?;
        let told = |_| anyhow::anyhow!("the last daemon died");
        wire.send("events/subscribe", &json!({"sessionId": self.session, "afterSeq": 0})).map_err(told)?;
        loop {
            match wire.read() {
                Ok(Some((_, event))) if event["type"] == "synced" => {
                    return Ok(Afterwards { events, state, forked });
                }
                Ok(Some((_, event))) => events.extend(number(&event).is_some().then_some(event)),
                Ok(None) => {}
                Err(Trouble::Wrong(error)) => return Err(error),
                Err(Trouble::Lost) => bail!("the last daemon died"),
            }
        }
    }

    /// Who was told something is told the same again: the winner of an approval that it won, everybody how a turn ended.
    fn ask_again(&mut self) -> anyhow::Result<()> {
        let told = |run: &Self, method: &str| -> Vec<(usize, Value)> {
            let here = |told: &&Told| told.params["sessionId"] == run.session.as_str();
            let told = run.seen.told.iter().filter(|told| told.method == method && told.answer.is_ok());
            told.filter(here).map(|told| (told.who, told.params.clone())).collect()
        };
        for (who, params) in told(self, "approval/respond") {
            let again = self.call(who, "approval/respond", params)?;
            ensure!(
                again.as_ref().is_ok_and(|answer| answer["status"] == "accepted"),
                "told again: {again:?}"
            );
        }
        for (who, params) in told(self, "session/prompt") {
            let turn = json!({"sessionId": self.session, "turnId": params["promptId"]});
            let ended = self.call(who, "turn/wait", turn)?;
            ensure!(ended.as_ref().is_ok_and(|ended| ended["outcome"].is_string()), "{params}: {ended:?}");
        }
        Ok(())
    }

    fn state(&mut self) -> anyhow::Result<Value> {
        let answer = self.get(&self.session.clone())?;
        let mut result = answer.map_err(|error| anyhow::anyhow!("session/get: {error:?}"))?;
        Ok(result["state"].take())
    }

    fn get(&mut self, session: &str) -> anyhow::Result<Answer> {
        self.call(0, "session/get", json!({"sessionId": session}))
    }

    /// What there is of the fork, once the daemon has swept what a dead one left behind.
    fn forked(&mut self) -> anyhow::Result<Option<Forked>> {
        let id = self.fork.clone();
        let mut state = match self.get(&id)? {
            Err(error) if error.code == NOT_FOUND => return Ok(None),
            other => other.map_err(|error| anyhow::anyhow!("the fork: {error:?}"))?,
        };
        let params = json!({"sessionId": id, "afterSeq": 0, "limit": 1000});
        let history = self.call(0, "session/history", params)?;
        let mut history = history.map_err(|error| anyhow::anyhow!("the fork's history: {error:?}"))?;
        let events = history["events"].as_array_mut().map(std::mem::take).context("events")?;
        Ok(Some(Forked { state: state["state"].take(), events }))
    }

    // ---- what people do ----

    /// The next act, if its moment has come. Who waits for a word of the model does so whatever the others do.
    fn due(&mut self) -> Option<Act> {
        let seen = &self.seen;
        let at = self.acts.iter().enumerate().position(|(at, act)| match act.when {
            When::Now => at == 0,
            When::Asked(words) => {
                at == 0 && seen.pending.iter().any(|asked| asked.to_string().contains(words))
            }
            When::Streamed(words) => seen.streamed.contains(words),
            When::Idle => false,
        })?;
        self.acts.remove(at)
    }

    fn perform(&mut self, act: &Act) -> anyhow::Result<()> {
        let calls = act
            .does
            .iter()
            .map(|(who, does)| {
                let (method, params) = match does {
                    Does::Prompt { text, more } => ("session/prompt", self.prompt(text, more)),
                    Does::SetMode(mode) => ("session/setMode", json!({"mode": mode})),
                    Does::Interrupt => ("session/interrupt", json!({})),
                    // Named, so that to repeat it is to do the same.
                    Does::RewindAll => {
                        ("session/rewind", json!({"beforeTurn": self.seen.first_turn(), "files": true}))
                    }
                    Does::Archive => ("session/archive", json!({})),
                    Does::Fork => ("session/fork", json!({"newSessionId": self.fork})),
                    Does::PromptFork(text) => ("session/prompt", self.prompt(text, &json!({}))),
                    Does::DeleteFork => ("session/delete", json!({})),
                };
                let mut params = params;
                let in_fork = matches!(does, Does::PromptFork(_) | Does::DeleteFork);
                params["sessionId"] = if in_fork { &self.fork } else { &self.session }.as_str().into();
                Call { who: *who, method, params }
            })
            .collect();
        self.calls(calls)?;
        Ok(())
    }

    fn prompt(&self, text: &str, more: &Value) -> Value {
        let mut params = json!({
            "sessionId": self.session,
            "promptId": uuid::Uuid::now_v7().to_string(),
            "content": [{"type": "text", "text": text}],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            params[name] = value.clone();
        }
        params
    }

    /// Answers the oldest approval that was not answered yet.
    fn answer_next(&mut self) -> anyhow::Result<bool> {
        let open = |asked: &&Value| {
            let id = asked["approvalId"].as_str().unwrap_or_default();
            !self.answered.contains(id) && !(self.scenario.answers)(asked).is_empty()
        };
        let Some(approval) = self.seen.pending.iter().find(open).cloned() else { return Ok(false) };
        if approval["kind"] == "plan" {
            ensure!(
                self.home.project().tree() == self.untouched,
                "the project was touched before a plan was approved"
            );
        }
        self.answered.insert(approval["approvalId"].as_str().unwrap_or_default().to_owned());
        let says = (self.scenario.answers)(&approval);
        let calls = says
            .into_iter()
            .map(|says| Call {
                who: says.who,
                method: "approval/respond",
                params: agentd_tests::Chat::answer_to(&approval, says.choice, says.more),
            })
            .collect();
        self.calls(calls)?;
        Ok(true)
    }

    /// Whether nothing happens any more before somebody speaks. Follows anew: after `synced` nothing is on its way.
    fn at_rest(&mut self) -> anyhow::Result<bool> {
        let before = self.seen.count("synced");
        self.retrying(|run| {
            if run.seen.count("synced") == before {
                run.follow(0)?;
            }
            while run.seen.count("synced") == before {
                run.pump(0)?;
            }
            Ok(())
        })?;
        Ok(self.seen.state["activity"] == "idle")
    }

    /// At rest: the next act, or a push for the model; nothing when all is through.
    fn go_on(&mut self) -> anyhow::Result<bool> {
        // Who waits for a word of the model goes on waiting; it may come with a later prompt.
        let next = self.acts.iter().position(|act| !matches!(act.when, When::Streamed(_)));
        if let Some(act) = next.and_then(|next| self.acts.remove(next)) {
            self.perform(&act)?;
            return Ok(true);
        }
        let state = &self.seen.state;
        let waits = state["inbox"].as_array().is_some_and(|inbox| !inbox.is_empty());
        if self.seen.said == END && !waits && state["lastOutcome"] == "finished" {
            return Ok(false);
        }
        self.pushes += 1;
        ensure!(self.pushes < PUSHES, "the scenario does not come to its end");
        let params = self.prompt("Go on.", &json!({}));
        self.call(0, "session/prompt", params)?.map_err(|error| anyhow::anyhow!("Go on: {error:?}"))?;
        Ok(true)
    }

    // ---- calls that survive ----

    fn call(&mut self, who: usize, method: &'static str, params: Value) -> anyhow::Result<Answer> {
        let mut answers = self.calls(vec![Call { who, method, params }])?;
        answers.pop().context("an answer")
    }

    /// Sends all, then reads all answers; what is lost with a daemon is sent to the next one.
    fn calls(&mut self, calls: Vec<Call>) -> anyhow::Result<Vec<Answer>> {
        let mut answers: Vec<Option<Answer>> = calls.iter().map(|_| None).collect();
        self.retrying(|run| {
            let mut ids = Vec::new();
            for (call, answer) in calls.iter().zip(&answers) {
                let id = match answer {
                    None => Some(run.wire(call.who)?.send(call.method, &call.params)?),
                    Some(_) => None,
                };
                ids.push(id);
            }
            for ((call, id), answer) in calls.iter().zip(ids).zip(&mut answers) {
                let Some(id) = id else { continue };
                while answer.is_none() {
                    *answer = run.wire(call.who)?.take(id);
                    if answer.is_none() {
                        run.pump(call.who)?;
                    }
                }
            }
            Ok(())
        })?;
        let answers: Vec<Answer> = answers.into_iter().flatten().collect();
        for (call, answer) in calls.into_iter().zip(&answers) {
            let Call { who, method, params } = call;
            self.seen.told.push(Told { who, method, params, answer: answer.clone() });
        }
        Ok(answers)
    }

    fn retrying(&mut self, mut what: impl FnMut(&mut Self) -> Talk<()>) -> anyhow::Result<()> {
        loop {
            match what(self) {
                Ok(()) => return Ok(()),
                Err(Trouble::Lost) => self.revive()?,
                Err(Trouble::Wrong(error)) => return Err(error),
            }
        }
    }

    fn wire(&mut self, who: usize) -> Talk<&mut Wire> {
        self.clients[who].wire.as_mut().ok_or(Trouble::Lost)
    }

    /// Reads one message of a client.
    fn pump(&mut self, who: usize) -> Talk<()> {
        let Some((subscription, event)) = self.wire(who)?.read()? else { return Ok(()) };
        if self.clients[who].left.contains(&subscription) {
            return Ok(());
        }
        if let Some(seq) = number(&event) {
            let client = &mut self.clients[who];
            if seq <= client.last {
                return Err(
                    anyhow::anyhow!("client {who} is sent {event} after event {}", client.last).into()
                );
            }
            client.last = seq;
        }
        self.seen.take(&event, who == 0)?;
        Ok(())
    }
}

fn git_init(home: &Home) {
    let status = std::process::Command::new("git")
        .args(["init", "-q", "."])
        .current_dir(&home.project().path)
        .env_clear()
        .envs(home.env())
        .status();
    assert!(status.is_ok_and(|status| status.success()), "git init");
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // Before the daemon it may kill.
        self.timer = None;
    }
}
