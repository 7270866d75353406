"""Keeps to-dos in memory, oldest first."""

from dataclasses import dataclass


@dataclass
class Todo:
    id: int
    title: str
    done: bool = False


class Store:
    def __init__(self):
        self._todos = []

    def add(self, title):
        todo = Todo(id=len(self._todos) + 1, title=title)
        self._todos.append(todo)
        return todo

    def all(self):
        return list(self._todos)

    def get(self, todo_id):
        for todo in self._todos:
            if todo.id == todo_id:
                return todo
        return None
