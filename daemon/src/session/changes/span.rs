//! Which snapshots and records a span means. Pure.

use agentd_protocol::changes::{Span, TurnRef};

use crate::ids::Seq;
use crate::session::SessionError;
use crate::session::trees::{Tree, Trees};

/// A span, worked out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Range {
    /// Records with greater numbers belong to it,
    pub(super) after: Seq,
    /// up to this one. Absent: all.
    pub(super) until: Option<Seq>,
    /// Its snapshots, in order. None: nothing had effects, or there is no repository.
    pub(super) points: Vec<Tree>,
    /// How it ended.
    pub(super) end: End,
    /// First snapshots of its turns that could not be taken.
    pub(super) gaps: Vec<Tree>,
}

/// The later end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The last of the snapshots.
    Kept(Tree),
    /// The turn still runs, or nothing came after it.
    Now,
    /// It was not kept; this is what the next turn found.
    Later(Tree),
    /// It was not kept, and no turn came after it.
    NotKept,
}

pub(super) fn resolve(trees: &Trees, span: &Span) -> Result<Range, SessionError> {
    let bounds = span.from.is_some() || span.to.is_some();
    if [span.turn.is_some(), span.since_plan, bounds].into_iter().filter(|set| *set).count() > 1 {
        return Err(SessionError::invalid("turn", "give one of turn, sincePlan, and from or to"));
    }
    if span.since_plan {
        return since_plan(trees);
    }
    let index = |turn: TurnRef| find(trees, turn);
    let first = span.turn.or(span.from).map(index).transpose()?.unwrap_or(0);
    let last = span.turn.or(span.to).map(index).transpose()?.unwrap_or(trees.turns.len().saturating_sub(1));
    if first > last {
        return Err(SessionError::invalid("to", "the span ends before it begins"));
    }
    let Some(turns) = trees.turns.get(first..=last) else {
        // No turn yet.
        return Ok(Range { after: Seq(0), until: None, points: Vec::new(), end: End::Now, gaps: Vec::new() });
    };
    Ok(Range {
        after: Seq(turns[0].begun.0 - 1),
        until: turns.last().and_then(|turn| turn.ended),
        points: points(trees, first, last),
        end: end(trees, first, last),
        gaps: gaps(trees, first, last),
    })
}

fn since_plan(trees: &Trees) -> Result<Range, SessionError> {
    let plan = trees.plan.as_ref().ok_or(SessionError::NotFound("approved plan"))?;
    let last = trees.turns.len().saturating_sub(1);
    let place = |tree: &Tree| (tree.record.offset, tree.record.index);
    let points = match &plan.tree {
        None => Vec::new(),
        Some(begin) => {
            let mut points = vec![begin.clone()];
            let later = |tree: &Tree| place(tree) > place(begin);
            points.extend(self::points(trees, plan.turn, last).into_iter().filter(later));
            points
        }
    };
    Ok(Range {
        after: plan.approved,
        until: None,
        points,
        end: end(trees, plan.turn, last),
        gaps: match &plan.tree {
            Some(tree) if tree.id.is_none() => vec![tree.clone()],
            _ => gaps(trees, plan.turn, last),
        },
    })
}

/// All snapshots of these turns that there are.
fn points(trees: &Trees, first: usize, last: usize) -> Vec<Tree> {
    let turns = trees.turns.get(first..=last).unwrap_or_default();
    turns
        .iter()
        .flat_map(|turn| turn.before.iter().chain(&turn.between).chain(&turn.after))
        .filter(|tree| tree.id.is_some())
        .cloned()
        .collect()
}

fn find(trees: &Trees, turn: TurnRef) -> Result<usize, SessionError> {
    let found = match turn {
        TurnRef::Number(number) => {
            (number as usize).checked_sub(1).filter(|index| *index < trees.turns.len())
        }
        TurnRef::Id(id) => trees.turns.iter().position(|known| known.turn == id),
    };
    found.ok_or(SessionError::NotFound("turn"))
}

/// What the last turn of these that had effects left.
fn end(trees: &Trees, first: usize, last: usize) -> End {
    let had_effects = |index: &usize| trees.turns[*index].before.is_some();
    let Some(index) = (first..=last).rev().find(had_effects) else { return End::Now };
    match &trees.turns[index].after {
        Some(tree) if tree.id.is_some() => return End::Kept(tree.clone()),
        _ => {}
    }
    let later = trees.turns[index + 1..].iter().find_map(|turn| turn.before.clone());
    match (later, &trees.turns[index].after) {
        (Some(tree), _) if tree.id.is_some() => End::Later(tree),
        (Some(_), _) | (None, Some(_)) => End::NotKept,
        (None, None) => End::Now,
    }
}

fn gaps(trees: &Trees, first: usize, last: usize) -> Vec<Tree> {
    let turns = trees.turns.get(first..=last).unwrap_or_default();
    turns.iter().filter_map(|turn| turn.before.clone().filter(|tree| tree.id.is_none())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TurnId;
    use crate::journal::RecordRef;
    use crate::session::trees::{PlanTree, TurnTrees};

    fn tree(number: u64) -> Tree {
        let id = format!("{number:040}").try_into().unwrap();
        Tree { id: Some(id), record: RecordRef { offset: number, len: 1, index: 0 } }
    }

    fn not_kept() -> Tree {
        Tree { id: None, record: RecordRef { offset: 99, len: 1, index: 0 } }
    }

    /// Turns from before and after trees; turn `i` has the records `10 i + 1` to `10 i + 10`.
    fn trees(turns: &[(Option<Tree>, Option<Tree>)]) -> Trees {
        let turn = |(index, (before, after)): (u64, &(Option<Tree>, Option<Tree>))| TurnTrees {
            between: Vec::new(),
            turn: TurnId::generate(),
            begun: Seq(index * 10 + 1),
            ended: Some(Seq(index * 10 + 10)),
            before: before.clone(),
            after: after.clone(),
            forgotten: false,
        };
        Trees { turns: (0..).zip(turns).map(turn).collect(), ..Trees::default() }
    }

    fn ends(trees: &Trees, span: Span) -> Option<(Tree, End)> {
        let range = resolve(trees, &span).unwrap();
        range.points.into_iter().find(|tree| tree.id.is_some()).zip(Some(range.end))
    }

    fn turn(number: u32) -> Span {
        Span { turn: Some(TurnRef::Number(number)), ..Span::default() }
    }

    #[test]
    fn turns_and_spans_of_turns() {
        let known = trees(&[(Some(tree(1)), Some(tree(2))), (None, None), (Some(tree(3)), Some(tree(4)))]);
        assert_eq!(ends(&known, turn(1)), Some((tree(1), End::Kept(tree(2)))));
        assert_eq!(ends(&known, turn(2)), None);
        assert_eq!(ends(&known, Span::default()), Some((tree(1), End::Kept(tree(4)))));
        let from = Span { from: Some(TurnRef::Number(2)), ..Span::default() };
        assert_eq!(ends(&known, from), Some((tree(3), End::Kept(tree(4)))));
        let to = Span { to: Some(TurnRef::Id(known.turns[1].turn)), ..Span::default() };
        assert_eq!(ends(&known, to.clone()), Some((tree(1), End::Kept(tree(2)))));
        let range = resolve(&known, &to).unwrap();
        assert_eq!((range.after, range.until), (Seq(0), Some(Seq(20))));
        assert_eq!(ends(&Trees::default(), Span::default()), None);
    }

    #[test]
    fn an_end_that_was_not_kept_is_said() {
        let running = trees(&[(Some(tree(1)), None)]);
        assert_eq!(ends(&running, turn(1)), Some((tree(1), End::Now)));
        let failed = trees(&[(Some(tree(1)), Some(not_kept()))]);
        assert_eq!(ends(&failed, turn(1)), Some((tree(1), End::NotKept)));
        let later = trees(&[(Some(tree(1)), Some(not_kept())), (None, None), (Some(tree(3)), None)]);
        assert_eq!(ends(&later, turn(1)), Some((tree(1), End::Later(tree(3)))));
        let gap = trees(&[(Some(not_kept()), None), (Some(tree(2)), Some(tree(3)))]);
        let range = resolve(&gap, &Span::default()).unwrap();
        assert_eq!((range.points, range.gaps), (vec![tree(2), tree(3)], vec![not_kept()]));
    }

    #[test]
    fn since_the_plan_is_from_its_own_tree_on() {
        let mut known = trees(&[(Some(tree(1)), Some(tree(2))), (Some(tree(3)), Some(tree(4)))]);
        let since = Span { since_plan: true, ..Span::default() };
        assert!(matches!(resolve(&known, &since), Err(SessionError::NotFound(_))));
        known.plan = Some(PlanTree { approved: Seq(14), turn: 1, tree: Some(tree(3)) });
        assert_eq!(ends(&known, since.clone()), Some((tree(3), End::Kept(tree(4)))));
        known.plan = Some(PlanTree { approved: Seq(14), turn: 1, tree: None });
        assert_eq!(ends(&known, since.clone()), None);
        assert_eq!(resolve(&known, &since).unwrap().after, Seq(14));
    }

    #[test]
    fn what_contradicts_itself_or_is_not_there_is_refused() {
        let known = trees(&[(None, None)]);
        for span in [Span { since_plan: true, ..turn(1) }, Span { from: Some(TurnRef::Number(1)), ..turn(1) }]
        {
            assert!(matches!(resolve(&known, &span), Err(SessionError::Invalid { .. })));
        }
        for number in [0, 2] {
            assert!(matches!(resolve(&known, &turn(number)), Err(SessionError::NotFound("turn"))));
        }
    }
}
