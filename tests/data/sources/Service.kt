package com.acme.app

import com.acme.bank.Account
import kotlinx.coroutines.flow.Flow as F
import java.time.*
import kotlin.math.max

const val LIMIT: Int = 10
val started = 1
private var hidden = 0
typealias Handler = (Int) -> Unit

interface Listener {
    fun changed(now: Int)
}

data class Entry(val name: String, val amount: Int = 0)

sealed class Service(private val name: String) : Base(), Listener {
    lateinit var owner: String
    private val secret: Int = 1
    override fun changed(now: Int) {}
    suspend fun <T> load(id: String): F<T> = TODO()
    internal fun inner() {}
    constructor(name: String, more: Int) : this(name)

    companion object {
        fun of(name: String): Service = TODO()
    }
}

enum class Kind { OPEN, CLOSED }
object Registry {
    fun all(): List<Service> = emptyList()
}
fun String.shout(): String = uppercase()
