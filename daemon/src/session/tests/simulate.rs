//! No reachable state without a next step: an engine of records only, with chance in place of the model, the tools and
//! the people, takes whatever step comes next. However it goes, it gets to the end.

use proptest::prelude::*;

use super::super::recover::recover;
use super::super::step::{Step, next_step};
use super::*;

/// Chance; when it runs out, everything takes its shortest way.
struct Dice(Vec<u8>);

impl Dice {
    fn roll(&mut self, sides: u8) -> u8 {
        self.0.pop().map_or(0, |number| number % sides)
    }
}

struct World {
    cast: Cast,
    state: SessionState,
    dice: Dice,
    prompts: usize,
    /// What was committed, in order.
    history: Vec<Vec<Record>>,
}

impl World {
    fn new(dice: Vec<u8>) -> Self {
        let cast = Cast::new();
        let state = cast.state();
        let mut world = Self { cast, state, dice: Dice(dice), prompts: 1, history: Vec::new() };
        let first = world.cast.prompt(0, At::Turn);
        world.commit(&[first]);
        world
    }

    fn commit(&mut self, records: &[Record]) {
        fold(&mut self.state, records);
        if !records.is_empty() {
            self.history.push(records.to_vec());
        }
    }

    fn call_index(&self, id: &CallId) -> usize {
        self.cast.calls.iter().position(|call| call == id).unwrap()
    }

    /// The records that the engine writes for `step`.
    fn records(&mut self, step: Step) -> Vec<Record> {
        let turn = self.state.turn.as_ref().map(|turn| turn.id);
        match step {
            Step::Idle => vec![],
            Step::StartTurn(id) => {
                vec![
                    TurnStarted { turn_id: id, origin: Origin::Client }.into(),
                    InboxTaken { prompt_id: id, turn_id: id }.into(),
                ]
            }
            Step::Sample { attempt } => self.sample(attempt),
            Step::WaitUntil(_) => self.sample(2),
            Step::Judge(calls) => calls.iter().flat_map(|id| self.judge(id)).collect(),
            Step::Await => {
                let pending = self.state.approvals[0].clone();
                let choice = [ChoiceId::Deny, ChoiceId::AllowOnce][usize::from(self.dice.roll(2))];
                let resolved = ApprovalResolved {
                    approval_id: pending.approval.approval_id.clone(),
                    resolution: Resolution::Answered,
                    choice: Some(choice),
                    by: by(),
                    feedback: (self.dice.roll(2) == 1).then(|| "why".into()),
                    answer: None,
                };
                let mut records = vec![resolved.into()];
                if choice == ChoiceId::Deny {
                    records.push(self.cast.result(self.call_index(&pending.call), ToolStatus::Denied));
                }
                records
            }
            Step::KeepTree(id) => {
                let index = self.cast.turns.iter().position(|turn| *turn == id).unwrap();
                vec![self.cast.tree(index, When::After, self.dice.roll(2) == 0)]
            }
            Step::Run(_) if self.wants_tree() => {
                let when = self.state.trees.wanted(turn.unwrap()).unwrap();
                let index = self.cast.turns.iter().position(|id| Some(*id) == turn).unwrap();
                vec![self.cast.tree(index, when, self.dice.roll(3) > 0)]
            }
            // After a restart, or a wait for a person, the classifier is asked once more.
            Step::Run(calls) if self.dice.roll(4) == 1 => {
                let heard = calls.iter().find_map(|id| self.classify(id));
                heard.unwrap_or_else(|| {
                    calls.iter().map(|id| self.cast.running(self.call_index(id), true)).collect()
                })
            }
            Step::Run(calls) => {
                let effects = self.dice.roll(2) == 1;
                calls.iter().map(|id| self.cast.running(self.call_index(id), effects)).collect()
            }
            Step::Busy => self.landing(),
            Step::Finish(ending) => {
                let mut records: Vec<_> = self
                    .state
                    .turn
                    .iter()
                    .flat_map(|turn| turn.calls())
                    .filter(|call| call.state != super::super::state::CallState::Finished)
                    .map(|call| self.cast.result(self.call_index(&call.id), ToolStatus::NotRun))
                    .collect();
                records.extend(super::super::approval::cancel_all(&self.state, "the turn ended"));
                let turn_id = turn.unwrap();
                let index = self.cast.turns.iter().position(|id| *id == turn_id).unwrap();
                records.push(self.cast.finished(index, ending.outcome));
                records
            }
        }
    }

    /// Whether a snapshot comes before the calls.
    fn wants_tree(&mut self) -> bool {
        let turn = self.state.turn.as_ref().map(|turn| turn.id);
        turn.and_then(|turn| self.state.trees.wanted(turn)).is_some() && self.dice.roll(2) == 1
    }

    fn sample(&mut self, attempt: u32) -> Vec<Record> {
        let turn_id = self.state.turn.as_ref().unwrap().id;
        let steering = self.state.inbox.iter().filter(|entry| entry.at == At::Step);
        let mut records: Vec<Record> =
            steering.map(|entry| InboxTaken { prompt_id: entry.prompt_id, turn_id }.into()).collect();
        records.push(self.cast.sampling(attempt));
        records
    }

    /// What the classifier says before a call, as far as the breaker lets it.
    fn classify(&mut self, id: &CallId) -> Option<Vec<Record>> {
        if self.state.breaker.is_open() || self.dice.roll(3) != 1 {
            return None;
        }
        let call = self.call_index(id);
        Some(match self.dice.roll(4) {
            0 => vec![self.cast.classified(call, Heard::Allowed), self.cast.judged(call, Decision::Allow)],
            1 => vec![
                self.cast.classified(call, Heard::Blocked),
                self.cast.judged(call, Decision::Deny),
                self.cast.result(call, ToolStatus::Denied),
            ],
            2 => [vec![self.cast.classified(call, Heard::Nothing)], self.ask(id)].concat(),
            // The mode had changed: judged anew.
            _ => vec![self.cast.classified(call, Heard::Dropped)],
        })
    }

    fn ask(&mut self, id: &CallId) -> Vec<Record> {
        let frame = Frame { session: self.cast.session, mode: Mode::Default, now: at(0) };
        let approval = Arc::new(frame.tool(tool_subject(id), "write a".into()));
        vec![
            self.cast.judged(self.call_index(id), Decision::Ask),
            ApprovalRequested { call_id: id.clone(), approval }.into(),
        ]
    }

    fn judge(&mut self, id: &CallId) -> Vec<Record> {
        if let Some(records) = self.classify(id) {
            return records;
        }
        let call = self.call_index(id);
        match self.dice.roll(3) {
            0 => vec![self.cast.judged(call, Decision::Deny), self.cast.result(call, ToolStatus::Denied)],
            1 => vec![self.cast.judged(call, Decision::Allow)],
            _ => self.ask(id),
        }
    }

    /// What was waited for comes.
    fn landing(&mut self) -> Vec<Record> {
        let turn = self.state.turn.as_ref().unwrap();
        let running = turn
            .calls()
            .iter()
            .find(|call| matches!(call.state, super::super::state::CallState::Running { .. }))
            .map(|call| call.id.clone());
        if let Some(id) = running {
            return vec![self.cast.result(self.call_index(&id), ToolStatus::Ok)];
        }
        match self.dice.roll(5) {
            1 => vec![self.cast.failed(AfterFailure::Retry { at: at(1) })],
            2 => vec![self.cast.failed(AfterFailure::GiveUp)],
            3 => vec![self.cast.replied(Stop::Length)],
            4 => {
                let mut records = vec![self.cast.replied(Stop::End)];
                for call in 0..usize::from(1 + self.dice.roll(4)) {
                    records.push(self.cast.proposed(call, self.dice.roll(2) == 0));
                }
                records
            }
            _ => vec![self.cast.replied(Stop::End)],
        }
    }

    /// Somebody interferes: a prompt, an interrupt, a crash, a shutdown.
    fn meddle(&mut self) {
        let turn = self.state.turn.as_ref().map(|turn| (turn.id, turn.stopping.is_some()));
        match (self.dice.roll(12), turn) {
            (1, _) if self.prompts < self.cast.turns.len() => {
                let at_point = if self.dice.roll(2) == 0 { At::Turn } else { At::Step };
                let prompt = self.cast.prompt(self.prompts, at_point);
                self.prompts += 1;
                self.commit(&[prompt]);
            }
            (2, Some((turn_id, false))) => {
                self.commit(&[TurnStopping { turn_id, by: by() }.into()]);
                if let Step::Finish(_) | Step::Busy = next_step(&self.state) {
                    return;
                }
                panic!("an interrupted turn goes on: {:?}", self.state);
            }
            (3, _) => self.crash(),
            (5, _) => self.commit(&[self.cast.asks_for_trust()]),
            (6, _) => {
                let choice =
                    [Some(ChoiceId::Trust), Some(ChoiceId::Untrusted), None][usize::from(self.dice.roll(3))];
                self.commit(&[self.cast.trusted(choice)]);
            }
            (4, Some((turn_id, _))) => {
                self.commit(&[TurnParked { turn_id }.into()]);
                self.crash();
            }
            _ => {}
        }
    }

    fn crash(&mut self) {
        let found = recover(&self.state);
        self.commit(&found);
        assert_ne!(next_step(&self.state), Step::Busy, "nothing runs after a restart: {:?}", self.state);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn every_history_comes_to_its_end(dice in prop::collection::vec(any::<u8>(), 0..200)) {
        let rolls = dice.len();
        let mut world = World::new(dice);
        let mut steps = 0;
        loop {
            world.meddle();
            let step = next_step(&world.state);
            if step == Step::Idle {
                break;
            }
            let before = world.state.clone();
            // Nothing waits for a question of trust, and nothing that ends takes it along.
            let mut unasked = before.clone();
            unasked.trust = None;
            prop_assert_eq!(next_step(&unasked), step.clone());
            prop_assert_eq!(recover(&unasked).len(), recover(&before).len());
            let records = world.records(step.clone());
            prop_assert!(!records.is_empty(), "{step:?} writes nothing in {before:?}");
            world.commit(&records);
            let mut after = world.state.clone();
            (after.head, after.updated_at) = (before.head, before.updated_at);
            prop_assert_eq!(&after.trust, &before.trust);
            prop_assert!(after != before, "{step:?} changed nothing in {before:?}");
            steps += 1;
            prop_assert!(steps < rolls + 60, "no end: {:?}", world.state);
        }
        prop_assert!(world.state.turn.is_none());
        prop_assert!(world.state.approvals.is_empty(), "{:?}", world.state.approvals);
        prop_assert!(world.state.inbox.is_empty() || world.state.inbox_held);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn every_history_replays(dice in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut world = World::new(dice);
        while next_step(&world.state) != Step::Idle {
            world.meddle();
            let step = next_step(&world.state);
            let records = world.records(step);
            world.commit(&records);
        }
        super::replay::replays(&world.cast, &world.history);
    }
}
